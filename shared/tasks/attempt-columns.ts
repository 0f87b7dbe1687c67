/** Columns of `attempts` as those statements answer them that show attempts whole. */
export const attemptColumns = {
  attempt: 'int4',
  worker: 'uuid',
  started_at: 'timestamptz',
  finished_at: 'timestamptz',
  outcome: 'text',
  error_type: 'text?',
  error_code: 'text?',
  error_message: 'text?',
  error_stack: 'text?',
  code_version: 'text?',
} as const;
