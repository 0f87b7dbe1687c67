/**
 * The first process of a container: becomes the role that its first argument names, in this very process, so that SIGTERM reaches
 * the service and not a shell before it.
 */
import { fileURLToPath } from 'node:url';
import { ROLES, renderRoles } from './roles.ts';

/** Source: sysexits.h. */
const EX_USAGE = 64;

const [node = '', , name = '', ...given] = process.argv;
const role = Object.hasOwn(ROLES, name) ? ROLES[name] : undefined;
if (role === undefined) {
  const isHelp = name === '--help' || name === '';
  process.stderr.write(
    `${isHelp ? '' : `${JSON.stringify(name)} is no role of this image.\n`}Say one as the first argument:\n${renderRoles()}`,
  );
  process.exit(name === '--help' ? 0 : EX_USAGE);
}
const program = new URL(`../../${role.program}`, import.meta.url);
process.argv = [node, fileURLToPath(program), ...(role.words ?? []), ...given];
await import(program.href);
