-- Requests of many clients, made beforehand, and one line about what came back.

local CLIENTS = 1000
-- Has no divisor in common with the number of clients, so that all of them take turns.
local STRIDE = 617

local requests = {}
local client = 0

-- Arguments: the method, and for a POST the body with @ where the client's address is to be.
function init(arguments)
    local method, template = arguments[1], arguments[2]
    for index = 0, CLIENTS - 1 do
        local address = string.format("10.0.%d.%d", math.floor(index / 250), index % 250 + 1)
        local headers, body = { ["X-Forwarded-For"] = address }, nil
        if template then
            headers = { ["Content-Type"] = "application/json" }
            body = string.gsub(template, "@", address)
        end
        requests[index] = wrk.format(method, nil, headers, body)
    end
end

function request()
    client = (client + STRIDE) % CLIENTS
    return requests[client]
end

function done(summary, latency, _)
    local errors = summary.errors
    local broken = errors.connect + errors.read + errors.write + errors.timeout
    io.write(string.format(
        "SEEN %d %d %d %d %d %d\n",
        summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
        errors.status, broken))
end
