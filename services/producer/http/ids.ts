/** Ids in paths. */
import { WarrenError } from '../../../shared/errors/warren-error.ts';
import { isUuid } from '../../../shared/tasks/ids.ts';

/** An id in its canonical form. Throws `field-invalid` for what cannot be one. */
export function idOf(text: string, field = 'id'): string {
  const id = text.toLowerCase();
  if (!isUuid(id)) throw new WarrenError('field-invalid', { field, reason: 'must be a UUID' });
  return id;
}
