import { expect, test } from '@jest/globals';
import { parseAddress } from '../../../../shared/amqp/address.ts';
import { connectFailure } from '../../../../shared/amqp/connect-failure.ts';

const ADDRESS = parseAddress('amqp://me:secret@127.0.0.1:5672/shop');

test.each([
  [
    'Handshake terminated by server: 403 (ACCESS-REFUSED) with message "ACCESS_REFUSED - Login was refused"',
    'broker-refused-login',
    'the user or the password is wrong',
  ],
  [
    'Handshake terminated by server: 403 (ACCESS-REFUSED) with message "ACCESS_REFUSED - access to vhost \'shop\' refused"',
    'broker-refused-login',
    'the user may not use this virtual host',
  ],
  [
    'Expected ConnectionOpenOk; got <ConnectionClose channel:0>',
    'broker-refused-login',
    'there is no such virtual host',
  ],
  ['connect ETIMEDOUT', 'broker-unavailable', 'no answer in time'],
  ['Frame size 1345270062 exceeds maxFrameSize 67108864', 'broker-unavailable', 'does not speak AMQP'],
  ['Socket closed abruptly during opening handshake', 'broker-unavailable', 'hung up'],
  ['something new\nwith lines', 'broker-unavailable', 'something new'],
])('%s is %s: %s', (message, code, reason) => {
  const failure = connectFailure(new Error(message), ADDRESS);
  expect(failure).toMatchObject({ code, facts: { server: 'amqp://127.0.0.1:5672/shop' } });
  expect(failure.facts['reason']).toContain(reason);
  expect(failure.message).not.toContain('secret');
  expect(failure.message).not.toContain('\n');
});

test.each([
  ['ECONNREFUSED', 'nothing listens'],
  ['ENOTFOUND', 'cannot be resolved'],
  ['ERR_SSL_WRONG_VERSION_NUMBER', 'does not speak TLS'],
  ['ECONNRESET', 'closed the connection'],
])('the code %s says: %s', (code, reason) => {
  const failure = connectFailure(Object.assign(new Error('x'), { code }), ADDRESS);
  expect(failure.facts['reason']).toContain(reason);
});
