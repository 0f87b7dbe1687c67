/** Stores of inputs for tests of single parts. */
import { InputStore } from '../../shared/tasks/input-store.ts';
import type { FileStore } from '../../shared/files/file-store.ts';
import type { Queryable } from '../../shared/postgres/statement.ts';
import { partDeps } from './core.ts';

/** One over a store, or over none. Inputs of more than `rowBytes` go there. */
export function openInputs(db: Queryable, store?: FileStore, rowBytes = 262_144): InputStore {
  return new InputStore({ ...partDeps, db, store }, { rowBytes, graceMs: 60_000 });
}
