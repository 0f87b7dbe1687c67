/** `node --import` this to run TypeScript sources as they are: for threads and processes that unit tests start. */
/* oxlint-disable typescript/no-unsafe-call, typescript/no-unsafe-member-access, typescript/no-unsafe-argument, typescript/no-unsafe-return, typescript/no-unsafe-assignment -- plain JavaScript without types: node loads it before it can load TypeScript */
import { register } from 'node:module';

register('./ts-hooks.mjs', import.meta.url);
