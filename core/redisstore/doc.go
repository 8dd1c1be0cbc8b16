// Package redisstore keeps logs in Redis, each in a sorted set. It needs Redis 6.2 or later, or Valkey: one
// server, one behind Sentinel, a Cluster or a Ring.
//
// A script decides about each request, on the clock of the server. Requests that wait go to the server together.
package redisstore
