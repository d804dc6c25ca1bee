-- Sends the request in FILE over and over, each with an id of its own, and prints what came of it as JSON.
-- wrk -s wrk.lua URL -- FILE ascending|random FIRST
local before, after, ascending, id

function init(args)
  local file = assert(io.open(args[1], "rb"))
  local request = file:read("*a")
  file:close()
  ascending = args[2] == "ascending"
  id = tonumber(args[3])
  math.randomseed(id)
  local from, to = request:find("0000000000000000", 1, true)
  before = from and request:sub(1, from - 1) or request
  after = from and request:sub(to + 1)
end

function request()
  if not after then return before end
  -- wrk asks for one request before it sends any, so the first id may be left out.
  if ascending then id = id + 1 else id = 1e15 + math.floor(math.random() * 8e15) end
  return before .. string.format("%.0f", id) .. after
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"responses":%d,"refused":%d,"broken":%d,"seconds":%.6f,"p50Ms":%.3f,"p90Ms":%.3f,"p99Ms":%.3f,"maxMs":%.3f}\n',
    summary.requests, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(90) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
