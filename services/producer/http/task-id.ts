/** The id of a task in a path. */
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { isUuid } from '../../../shared/tasks/ids.ts';

/** An id in its canonical form. Throws `field-invalid` for what cannot be one. */
export function parseTaskId(text: string): string {
  const id = text.toLowerCase();
  if (!isUuid(id)) throw new WarrenError('field-invalid', { field: 'id', reason: 'must be a UUID' });
  return id;
}
