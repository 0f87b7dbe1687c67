/** What a container of the image can be, by its first argument. A new role is a line here. */

/** One role. */
export interface Role {
  /** The program, below `dist/`. */
  readonly program: string;
  /** Words that it is given before those of the caller. */
  readonly words?: readonly string[];
  /** Setting of the port that answers `/livez`; a role without one ends by itself. */
  readonly port?: 'producerPort' | 'workerPort' | 'deadLetterHandlerPort';
  readonly meaning: string;
}

const COMMAND_LINE = 'cli/main.js';

/** The roles. */
export const ROLES: Readonly<Record<string, Role>> = {
  producer: { program: 'services/producer/main.js', port: 'producerPort', meaning: 'Task API and AMQP front door' },
  worker: { program: 'services/worker/main.js', port: 'workerPort', meaning: 'runs tasks (--queues, --tasks)' },
  'dead-letter-handler': {
    program: 'services/dead-letter-handler/main.js',
    port: 'deadLetterHandlerPort',
    meaning: 'dead letters, replays, alerts',
  },
  migrate: { program: COMMAND_LINE, words: ['migrate'], meaning: 'applies missing migrations, then ends' },
  topology: {
    program: COMMAND_LINE,
    words: ['topology', 'apply'],
    meaning: 'declares exchanges and queues, then ends (--queues)',
  },
  warren: { program: COMMAND_LINE, meaning: 'the command line, with any of its commands' },
};

/** Lines that list the roles. */
export function renderRoles(): string {
  const width = Math.max(...Object.keys(ROLES).map((name) => name.length));
  return Object.entries(ROLES)
    .map(([name, { meaning }]) => `  ${name.padEnd(width)}  ${meaning}\n`)
    .join('');
}
