// A server with one of the limiters for Node, as its documentation shows it: node server.cjs NAME PORT
const express = require('express')
const { rateLimit } = require('express-rate-limit')
const { RateLimiterMemory } = require('rate-limiter-flexible')

function flexible() {
  const limiter = new RateLimiterMemory({ points: 40, duration: 2 })
  return (request, response, next) => {
    limiter
      .consume(request.ip)
      .then(() => next())
      .catch((refused) => {
        response.set('Retry-After', String(refused.msBeforeNext / 1000))
        response.status(429).send('Too Many Requests')
      })
  }
}

const limiters = {
  'express-rate-limit': () => rateLimit({ windowMs: 2000, limit: 40 }),
  'rate-limiter-flexible': flexible,
}

const [name, port] = process.argv.slice(2)
const app = express()
app.use(limiters[name]())
app.get('/', (request, response) => response.send('Hello, world!\n'))
app.listen(Number(port), '127.0.0.1')
