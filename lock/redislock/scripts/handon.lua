-- ARGV: process, key, when the lease ended or would have. Hands on a key that was released by HDEL while others wanted it.
proc = ARGV[1]
work[1] = ARGV[2]
if tonumber(ARGV[3]) > now then return answer { 0 } end
expired = expired + 1
return answer { 3 }
