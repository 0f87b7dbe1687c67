import { describe, expect, test } from '@jest/globals';
import { parseAddress } from '../../../../shared/amqp/address.ts';

describe('an address', () => {
  test('has the usual defaults', () => {
    expect(parseAddress('amqp://127.0.0.1')).toMatchObject({
      port: 5_672,
      username: 'guest',
      password: 'guest',
      vhost: '/',
    });
    expect(parseAddress('amqps://broker.example.com')).toMatchObject({ protocol: 'amqps', port: 5_671 });
  });

  test.each([
    ['p%40ss%3A%2F%23%3F%25', 'p@ss:/#?%'],
    ['%C3%A9%E2%82%AC', 'é€'],
    ['a+b', 'a+b'],
    ['', ''],
  ])('reads the password %s as %s', (written, password) => {
    expect(parseAddress(`amqp://me:${written}@127.0.0.1`)).toMatchObject({ username: 'me', password });
  });

  test.each([
    ['', '/'],
    ['/', '/'],
    ['/%2F', '/'],
    ['/shop', 'shop'],
    ['/a%2Fb%20%C3%A9', 'a/b é'],
  ])('reads the path "%s" as the virtual host %s', (path, vhost) => {
    expect(parseAddress(`amqp://127.0.0.1${path}`).vhost).toBe(vhost);
  });

  test('is shown without user and password', () => {
    expect(parseAddress('amqp://me:secret@[::1]:5673/a%2Fb').shown).toBe('amqp://[::1]:5673/a%2Fb');
  });

  test.each([
    'amqp://me:sec/ret@127.0.0.1',
    'http://me:secret@127.0.0.1',
    'me:secret@127.0.0.1',
    'amqp://me:secret%ZZ@127.0.0.1',
    'amqp://me:secret@127.0.0.1:99999',
    '',
  ])('that cannot be read is refused without repeating it: %s', (url) => {
    expect(() => parseAddress(url)).toThrow(expect.objectContaining({ code: 'config-invalid' }));
    expect(() => parseAddress(url)).not.toThrow(/sec/);
  });
});
