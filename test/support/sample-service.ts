/** A service that only lives, for tests of the frame around services. Its argument says what goes wrong. */
import { loadConfig } from '../../shared/config/load.ts';
import { HealthServer } from '../../shared/http/health.ts';
import { runService } from '../../shared/lifecycle/process-main.ts';
import { createMetrics } from '../../shared/observability/metrics.ts';

const [, , fault] = process.argv;

await runService({
  name: 'sample',
  load: (file) => loadConfig({ user: 'worker', file }),
  create: ({ config, log, clock }) => {
    const metrics = createMetrics({ service: 'sample', version: '0', withProcess: true });
    const health = new HealthServer(
      { clock, log, checks: [], metrics },
      { host: config.http.host, port: config.http.workerPort },
    );
    return {
      part: {
        start: async () => {
          await health.start();
          if (fault === 'reject') void Promise.reject(new Error('nobody waits for this'));
        },
        stop: async (deadlineMs) => {
          if (fault === 'hang') await new Promise(() => undefined);
          await health.stop(deadlineMs);
        },
      },
      describe: () => ({ url: health.url }),
    };
  },
});
