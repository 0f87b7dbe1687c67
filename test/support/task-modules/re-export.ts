/** Exports a type of another module once more. */
export { onLoop } from './in-thread.ts';
