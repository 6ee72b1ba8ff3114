-- Asks Slidegate about each request: refuses it as Slidegate says, or lets it pass and tells the
-- client in the response where it stands.

local ask_url = "http://127.0.0.1:8081/v1/auth"
local timeout_ms = 500
-- If Slidegate is on another machine it asks for its token, decisions.token.
local token = nil -- "change-me"
-- If Slidegate cannot be asked: "open" lets requests pass, "closed" refuses them with 503.
local on_failure = "open"

local standing = {
  "ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"
}
-- They are about the client's connection or body, which stay here.
local left_out = { "connection", "content-length", "expect", "te", "transfer-encoding", "upgrade" }

local function ask(txn)
  -- Forward the client's headers, for API keys. The headers that Slidegate trusts are set here.
  local headers = txn.http:req_get_headers()
  for _, name in ipairs(left_out) do headers[name] = nil end
  headers["x-forwarded-method"] = { txn.f:method() }
  headers["x-forwarded-uri"] = { txn.f:pathq() }
  headers["x-forwarded-for"] = { txn.f:src() }
  headers["x-slidegate-token"] = token and { token } or nil
  return core.httpclient():get{ url = ask_url, headers = headers, timeout = timeout_ms }
end

-- Whether it was Slidegate that answered. HAProxy's client says 503 itself if it cannot connect, 504
-- after the timeout and 502 to what it cannot read. A 503 of Slidegate's, when a policy wants one,
-- has a Retry-After.
local function answered(answer)
  local status = answer and answer.status or 0
  if status == 503 then return answer.headers["retry-after"] ~= nil end
  return status ~= 0 and status ~= 502 and status ~= 504
end

local function refuse(txn, status, answer)
  local reply = txn:reply{ status = status, body = answer and answer.body or "" }
  for name, values in pairs(answer and answer.headers or {}) do
    if name ~= "content-length" and name ~= "date" then
      for _, value in pairs(values) do reply:add_header(name, value) end
    end
  end
  txn:done(reply)
end

core.register_action("slidegate", { "http-req" }, function(txn)
  local answer = ask(txn)
  if not answered(answer) then
    if on_failure == "closed" then refuse(txn, 503) end
  elseif answer.status == 200 then
    txn:set_priv(answer.headers)
  else
    refuse(txn, answer.status, answer)
  end
end)

core.register_action("slidegate-standing", { "http-res" }, function(txn)
  local headers = txn:get_priv()
  for _, name in ipairs(headers and standing or {}) do
    -- HAProxy's lists of values begin at 0.
    if headers[name] then txn.http:res_set_header(name, headers[name][0]) end
  end
end)
