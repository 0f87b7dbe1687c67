/** The worker process. */
import { loadConfig } from '../../shared/config/load.ts';
import { runService } from '../../shared/lifecycle/process-main.ts';
import { createWorker } from './service.ts';

await runService({ name: 'worker', load: (file) => loadConfig({ user: 'worker', file }), create: createWorker });
