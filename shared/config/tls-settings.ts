/** Settings of certificates and keys: of our connections, and of our servers. All are files in PEM. */
import { filePath } from './format.ts';

/** By group. */
export const TLS_SETTINGS = {
  amqp: {
    tlsCaFile: filePath('With amqps://: file of the certificates (PEM) to trust; empty: those of the system.'),
    tlsCertFile: filePath('With amqps://: file of the certificate (PEM) that RabbitMQ is shown; empty: none.'),
    tlsKeyFile: filePath('File of the private key (PEM, not encrypted) of amqp.tlsCertFile.'),
  },
  postgres: {
    tlsCaFile: filePath(
      'File of the certificates (PEM) to trust; with it the server must speak TLS, whether or not the URL says sslmode. Empty: those of the system.',
    ),
    tlsCertFile: filePath('File of the certificate (PEM) that Postgres is shown; empty: none.'),
    tlsKeyFile: filePath('File of the private key (PEM, not encrypted) of postgres.tlsCertFile.'),
  },
  http: {
    tlsCertFile: filePath(
      'File of the certificate (PEM, followed by those between it and its CA) of the HTTP servers, which then speak https alone; looked at again every 10 seconds.',
    ),
    tlsKeyFile: filePath('File of the private key (PEM, not encrypted) of http.tlsCertFile.'),
  },
} as const;
