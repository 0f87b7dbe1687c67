/** All sample types, for `worker.modules` in the configuration. */
export { couponCount, couponCreate, userCheck } from './coupons.ts';
export { demoSlow } from './demo-slow.ts';
export { imageThumbnail } from './image-thumbnail.ts';
export { notifyWebhook } from './notify-webhook.ts';
export { reportCsv } from './report-csv.ts';
export { settlementDay } from './settlement.ts';
export { textDigest } from './text-digest.ts';
