/** What the configuration lets in, for whoever checks submissions or says why they were refused. */
import { isOwnQueue, namesOf } from '../amqp/topology.ts';
import type { Config } from '../config/schema.ts';
import type { SubmissionLimits } from './check-submission.ts';

/** The limits: where there is a store of files, an input may be too large for its row. */
export function limitsOf(
  { limits, files, producer, prefix }: Config,
  webhookFault: SubmissionLimits['webhookFault'],
): SubmissionLimits {
  const { messageBytes: rowBytes, ...others } = limits;
  const messageBytes = files.store === 'none' ? rowBytes : Math.max(rowBytes, files.inputMaxBytes);
  const names = namesOf(prefix);
  return {
    ...others,
    messageBytes,
    requireMessageId: producer.requireMessageId,
    webhookFault,
    isOwnQueue: (name) => isOwnQueue(name, names),
  };
}
