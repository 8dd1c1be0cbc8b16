package redisstore

import "github.com/sashlimit/sash/core/internal/redisclient"

// The Class of each [core.StoreError] of this store and of those of package redisstream.
const (
	ClassTimeout  = redisclient.ClassTimeout  // "timeout": no reply in time
	ClassCanceled = redisclient.ClassCanceled // "canceled": the caller has given up
	ClassRefused  = redisclient.ClassRefused  // "refused": no connection, or it ended before the reply
	ClassPool     = redisclient.ClassPool     // "pool": the client has no free connection, or was closed
	ClassAuth     = redisclient.ClassAuth     // "auth": another login is wanted, or the user lacks a permission
	ClassReadOnly = redisclient.ClassReadOnly // "read-only": no writes: a replica, or it cannot save or lacks replicas
	ClassCluster  = redisclient.ClassCluster  // "cluster": it is down or moves slots, or the client is of the wrong kind
	ClassBusy     = redisclient.ClassBusy     // "busy": the server loads its data, or runs another program's script
	ClassOOM      = redisclient.ClassOOM      // "oom": the server is out of memory
	ClassScript   = redisclient.ClassScript   // "script": the server does not run the scripts
	ClassType     = redisclient.ClassType     // "type": the key holds another type; the only class with OneKey
	ClassProtocol = redisclient.ClassProtocol // "protocol": the reply is not one of the scripts', or TLS fails
)
