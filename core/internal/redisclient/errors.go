package redisclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/store"
)

// The Class of each [store.StoreError] of this store.
const (
	ClassTimeout  = "timeout"   // no reply in time
	ClassCanceled = "canceled"  // the caller has given up
	ClassRefused  = "refused"   // no connection, or it ended before the reply
	ClassPool     = "pool"      // the client has no free connection, or was closed
	ClassAuth     = "auth"      // the server wants another login, or the user lacks a permission that the scripts need
	ClassReadOnly = "read-only" // the server takes no writes: a replica, or one that cannot save or misses its replicas
	ClassCluster  = "cluster"   // a cluster that is down or moves its slots, or a client of the wrong kind
	ClassBusy     = "busy"      // the server loads its data, or runs another program's script
	ClassOOM      = "oom"       // the server is out of memory
	ClassScript   = "script"    // the server does not run the scripts
	ClassType     = "type"      // the key holds another type; the only class with OneKey
	ClassProtocol = "protocol"  // the reply is not one of the scripts', or TLS fails
)

// ProtocolError returns the error for a reply that the scripts never give.
func ProtocolError(format string, args ...any) error {
	return &store.StoreError{Err: fmt.Errorf(format, args...), Class: ClassProtocol, Advice: adviseProtocol}
}

const (
	adviseCluster = "use redis.NewClusterClient: the server is part of a cluster"
	adviseLogin   = "give the client the server's password (Options.Password)"
	adviseMaster  = "connect to the master: this is a replica; after a failover, check " +
		"that its name resolves to the new master"
	adviseMasters  = "restore the masters that the cluster misses (CLUSTER INFO)"
	adviseProtocol = "check that a Redis or Valkey server has this address, " +
		"and that no proxy changes its replies"
	adviseRefused = "start the server, or correct the client's address " +
		"(Addr, Addrs, SentinelAddrs, MasterName)"
)

// replyClasses has class and advice of the server's errors, by their prefix. If the advice is empty, permissionAdvice
// gives it.
var replyClasses = []struct{ prefix, class, advice string }{
	{"NOAUTH", ClassAuth, adviseLogin},
	{"Protocol error: unauthenticated", ClassAuth, adviseLogin}, // to commands of more than 10 words
	{"WRONGPASS", ClassAuth, "correct the client's user and password (Options.Username, Options.Password)"},
	{"AUTH ", ClassAuth, "give the client no password: the server has none"},
	{"unknown command 'auth'", ClassAuth, "give the client no password: the server has no AUTH"},
	{"DENIED", ClassAuth, "set a password on the server, which is in protected mode"},
	{"NOPERM", ClassAuth, ""},
	{"ACL failure in script", ClassAuth, ""},
	{"The user executing the script", ClassAuth, ""},
	{"READONLY", ClassReadOnly, adviseMaster},
	{"MASTERDOWN", ClassReadOnly, adviseMaster},
	{"Can not execute the command on a stale replica", ClassReadOnly, adviseMaster},
	{"MISCONF", ClassReadOnly, "find out from the server's log why it cannot save, such as a full disk"},
	{"NOREPLICAS", ClassReadOnly, "restore its replicas, or lower min-replicas-to-write"},
	{"MOVED", ClassCluster, adviseCluster},
	{"ASK ", ClassCluster, adviseCluster},
	{"CROSSSLOT", ClassCluster, adviseCluster},
	{"SELECT is not allowed in cluster mode", ClassCluster, adviseCluster + ", which has database 0 alone"},
	{"This instance has cluster support disabled", ClassCluster,
		"use redis.NewClient: the server is not part of a cluster"},
	{"TRYAGAIN", ClassCluster, "wait for the cluster to move a slot; a plain client must be a redis.NewClusterClient"},
	{"CLUSTERDOWN", ClassCluster, adviseMasters},
	{"Script attempted to", ClassCluster, adviseMasters},
	{"LOADING", ClassBusy, "wait: the server loads its data"},
	{"BUSY ", ClassBusy, "find the client that runs a script without end, and stop it (SCRIPT KILL)"},
	{"OOM", ClassOOM, "raise maxmemory, or move other data elsewhere"},
	{"WRONGTYPE", ClassType, "find who else writes to the store's keys, delete this one, and give the store a prefix " +
		"of its own (WithPrefix)"},
	{"max number of clients", ClassRefused, // a node of a cluster goes on with "+ cluster connections reached"
		"raise maxclients on the server, or lower the PoolSize of its clients"},
	{"DB index is out of range", ClassScript, "correct the client's database number (Options.DB); a cluster has " +
		"database 0 alone, unless cluster-databases says more"},
	{"Protocol error", ClassProtocol, adviseProtocol},
	{redis.Nil.Error(), ClassProtocol, adviseProtocol},
}

// errNoShard is the error of commands to a shard to which a Ring has no connection: go-redis drops the reason.
var errNoShard = &store.StoreError{
	Err: errors.New("the Ring has no connection to a shard"), Class: ClassRefused,
	Advice: "start the shard, or correct its address, password, TLSConfig or PoolSize: " +
		"go-redis does not tell why a Ring has no connection",
}

// errAbandoned is the error of questions that are not sent.
var errAbandoned = fmt.Errorf("%d calls have had no answer: %w", mostCalls, os.ErrDeadlineExceeded)

// errorPrefix matches what servers put before the error of a command that a script has called.
var errorPrefix = regexp.MustCompile(
	`^(ERR )?(Error running script \(call to \w+\): )?(@user_script: ?\d+: )*-?(ERR )?`)

// diagnose classifies an error by its type, or by its text if go-redis has no type for it. These texts are the same
// since 9.7.
func (c *Conn) diagnose(err error) *store.StoreError {
	text := err.Error()
	if redacted := redact(text); redacted != text {
		err = replyError(redacted)
	}
	var (
		reply  redis.Error
		late   interface{ Timeout() bool }
		op     *net.OpError
		onWire = errors.As(err, &op)
		class  = ClassProtocol
		advice = adviseProtocol
	)
	switch {
	case strings.HasPrefix(text, "redis: all sentinels"), // the text may go on with a sentinel's reply
		strings.HasPrefix(text, "redis: all ring shards are down"),
		strings.HasPrefix(text, "redis: cluster has no nodes"):
		class, advice = ClassRefused, adviseRefused
	case errors.As(err, &reply):
		return c.diagnoseReply(err, reply.Error())
	case errors.Is(err, context.Canceled):
		class, advice = ClassCanceled, "nothing: the caller's context was cancelled"
	case errors.Is(err, redis.ErrClosed):
		class, advice = ClassPool, "close the client after the last request"
	case strings.HasPrefix(text, "redis: connection pool"):
		class, advice = ClassPool, "raise the client's PoolSize, or find out what else holds its connections"
	case errors.As(err, &late) && late.Timeout():
		class, advice = ClassTimeout, "find out why the server or the network is slow (SLOWLOG, CPU), "+
			"or whether the client's pool is exhausted (PoolSize); "+
			"if there is never an answer, whether only the client uses TLS"
	case errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, new(tls.RecordHeaderError)),
		onWire && (op.Op == "remote error" || op.Op == "local error"): // an alert of crypto/tls
		advice = "correct the client's TLSConfig: the authority it trusts, the server's name, its own certificate"
	case onWire && op.Op == "dial":
		class, advice = ClassRefused, adviseRefused
	case onWire, errors.As(err, new(syscall.Errno)), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		class, advice = ClassRefused,
			"find out why the server closes connections: it stops, has too many (maxclients), "+
				"or requires TLS (the client's TLSConfig)"
	}
	return &store.StoreError{Err: err, Class: class, Advice: advice}
}

// userName matches the part of a NOPERM error of Redis 7.2 and later that has the user's name. Names have no spaces.
var userName = regexp.MustCompile(`User \S+ has no permissions`)

// redact removes from an error of the server what a log should not have: the arguments of the command, which may be a
// password if the server has no AUTH, and otherwise are a key or a script; and the name of the user.
func redact(reply string) string {
	reply, _, _ = strings.Cut(reply, ", with args beginning with:")
	return userName.ReplaceAllLiteralString(reply, "the user has no permissions")
}

// diagnoseReply classifies an error of the server itself.
func (c *Conn) diagnoseReply(err error, reply string) *store.StoreError {
	reply = strings.ReplaceAll(reply[len(errorPrefix.FindString(reply)):], "`", "'")
	for _, known := range replyClasses {
		if strings.HasPrefix(reply, known.prefix) {
			if known.advice == "" {
				known.advice = c.permissionAdvice(reply)
			}
			return &store.StoreError{
				Err: err, Class: known.class, Advice: known.advice, OneKey: known.class == ClassType,
			}
		}
	}
	const advice = "use Redis 6.2 or later, or Valkey, without rename-command for the commands that scripts call"
	return &store.StoreError{Err: err, Class: ClassScript, Advice: advice}
}

var refusedCommand = regexp.MustCompile(`'([\w|]+)' command`)

// permissionAdvice returns the advice for a NOPERM error. Redis 7.0 does not name a command that a script has called.
func (c *Conn) permissionAdvice(reply string) string {
	switch named := refusedCommand.FindStringSubmatch(reply); {
	case named != nil:
		return grant(named[1])
	case strings.Contains(reply, "access"):
		return "let the Redis user access the store's keys (ACL SETUSER <user> ~sash:*, or with your prefix)"
	}
	return grant(c.commands()...)
}

// commands returns the commands that the store's user must be allowed to run, for overrides too.
func (c *Conn) commands() []string {
	names := append([]string{"EVAL", "EVALSHA"}, c.of.Commands...)
	return append(names, "HGET", "HSET", "HDEL", "HLEN", "HGETALL") // which only overrides need
}

// grant is the advice to permit these commands.
func grant(commands ...string) string {
	return "permit it to the Redis user: ACL SETUSER <user> +" + strings.ToLower(strings.Join(commands, " +"))
}

// Failed returns an error of the client as a [store.StoreError] with class and advice. It leaves errors of sash as they
// are.
func (c *Conn) Failed(err error) error {
	if err == nil || errors.As(err, new(*store.StoreError)) || errors.As(err, new(*store.ConfigError)) {
		return err
	}
	return c.diagnose(err)
}

// replyError is an error of the server, like those of go-redis.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError makes it an error of the server to [redis.HasErrorPrefix].
func (replyError) RedisError() {}
