/** The one message for a machine that has no server and no way to get one. */

/** The two kinds of server. */
export type ServerKind = 'broker' | 'database';

const WORDS = {
  broker: {
    what: 'RabbitMQ',
    variable: 'AMQP_URL',
    example: 'amqp://user:password@host:5672',
    debian: 'sudo apt-get install rabbitmq-server',
    homebrew: 'brew install rabbitmq',
  },
  database: {
    what: 'Postgres',
    variable: 'DATABASE_URL',
    example: 'postgres://user:password@host:5432/postgres',
    debian: 'sudo apt-get install postgresql',
    homebrew: 'brew install postgresql@17',
  },
} as const;

/** Says what is missing, why each way failed (`reasons`, one each), and the commands that would provide it. */
export function missingMessage(kind: ServerKind, reasons: readonly string[], platform: NodeJS.Platform): string {
  const { what, variable, example, debian, homebrew } = WORDS[kind];
  const install =
    platform === 'darwin'
      ? `    ${homebrew}`
      : `    ${debian}\n        (starts a service of its own, which is not used; on other systems: the package with this name)`;
  return [
    `there is no ${what} to run with:`,
    ...reasons.map((reason) => `    ${reason}`),
    'any one of these provides it; then run the same command again:',
    install,
    '    a Docker engine that this user may use: `docker info` must answer',
    `    export ${variable}=${example}`,
  ].join('\n');
}
