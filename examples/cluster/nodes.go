package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	slots     = 16384
	firstPort = 7001
	busOffset = 10_000 // from a node's port to the one where it talks to other nodes
)

// nodes are the servers of a cluster, each of which has a third of the slots.
type nodes []*node

type node struct {
	port int
	dir  string
	cmd  *exec.Cmd
}

// startCluster returns the nodes that it has started, also with an error.
func startCluster(ctx context.Context) (c nodes, err error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errors.New("redis-server is not on PATH: install Redis " +
			"(apt-get install redis-server, dnf install redis, apk add redis, brew install redis)")
	}
	port := firstPort
	for range 3 {
		for port < slots && !(isFree(port) && isFree(port+busOffset)) {
			port++
		}
		n := &node{port: port}
		port++
		if n.dir, err = os.MkdirTemp("", "sash-cluster-"); err != nil {
			return c, err
		}
		c = append(c, n)
		if err := n.start(); err != nil {
			return c, err
		}
	}
	return c, c.meet(ctx)
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// start runs the node. When it has been killed it comes back into its cluster, empty.
func (n *node) start() error {
	n.cmd = exec.Command("redis-server", //nolint:gosec // the arguments are ours
		"--port", strconv.Itoa(n.port), "--bind", "127.0.0.1",
		"--dir", n.dir, "--save", "",
		"--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1",
		"--cluster-node-timeout", "1000",
		"--cluster-require-full-coverage", "no", // so that others serve their slots while one is away
	)
	return n.cmd.Start()
}

func (n *node) kill() {
	if n.cmd.Process != nil {
		n.cmd.Process.Kill() //nolint:errcheck // it may be gone already
		n.cmd.Wait()         //nolint:errcheck // that it was killed is no news
	}
}

func (n *node) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.port)) }

// meet makes a cluster of the nodes.
func (c nodes) meet(ctx context.Context) error {
	clients := make([]*redis.Client, len(c))
	for i, n := range c {
		clients[i] = redis.NewClient(&redis.Options{Addr: n.addr()})
		defer clients[i].Close()
		if err := wait(ctx, func() error { return clients[i].Ping(ctx).Err() }); err != nil {
			return fmt.Errorf("redis-server on port %d: %w", n.port, err)
		}
		if err := clients[i].ClusterAddSlotsRange(ctx, i*slots/len(c), (i+1)*slots/len(c)-1).Err(); err != nil {
			return err
		}
		if err := clients[i].Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
	}
	for _, client := range clients[1:] {
		if err := client.ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(c[0].port)).Err(); err != nil {
			return err
		}
	}
	for _, client := range clients {
		if err := wait(ctx, func() error {
			info, err := client.ClusterInfo(ctx).Result()
			size := "cluster_size:" + strconv.Itoa(len(c))
			if err == nil && !(strings.Contains(info, "cluster_state:ok") && strings.Contains(info, size)) {
				err = errors.New("the cluster does not form")
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// wait tries for 20 s.
func wait(ctx context.Context, done func() error) error {
	for end := time.Now().Add(20 * time.Second); ; {
		err := done()
		if err == nil || time.Now().After(end) {
			return err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func (c nodes) addrs() (addrs []string) {
	for _, n := range c {
		addrs = append(addrs, n.addr())
	}
	return addrs
}

func (c nodes) ports() string {
	return fmt.Sprintf("%d, %d and %d", c[0].port, c[1].port, c[2].port)
}

func (c nodes) stop() {
	for _, n := range c {
		n.kill()
		os.RemoveAll(n.dir)
	}
}
