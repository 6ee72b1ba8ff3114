export { Client, Decision, SettleError } from "./client.js";
