/** The producer process. */
import { loadConfig } from '../../shared/config/load.ts';
import { runService } from '../../shared/lifecycle/process-main.ts';
import { createProducer } from './service.ts';

await runService({
  name: 'producer',
  load: (file) => loadConfig({ user: 'producer', file }),
  create: createProducer,
  stopWithinMs: () => 10_000,
});
