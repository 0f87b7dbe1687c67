/** Randomness as a dependency, so that tests can hold it. */
import { randomInt } from 'node:crypto';

const STEPS = 2 ** 47;

/** A number from 0 inclusive to 1 exclusive, from the system's generator. */
export const systemRandom = (): number => randomInt(STEPS) / STEPS;
