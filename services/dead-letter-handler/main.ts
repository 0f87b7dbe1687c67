/** The dead-letter-handler process. */
import { loadConfig } from '../../shared/config/load.ts';
import { runService } from '../../shared/lifecycle/process-main.ts';
import { createDeadLetterHandler } from './service.ts';

await runService({
  name: 'dead-letter-handler',
  load: (file) => loadConfig({ user: 'dead-letter-handler', file }),
  create: createDeadLetterHandler,
  stopWithinMs: () => 10_000,
});
