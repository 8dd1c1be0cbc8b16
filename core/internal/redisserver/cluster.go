package redisserver

import (
	"slices"
	"strconv"
	"testing"
)

const slotCount = 16384

// Cluster is a Redis Cluster of masters that share the slots evenly, the first
// node having the lowest. Its methods belong to the goroutine of the test, as
// those of a [Server] do.
type Cluster struct {
	tb     testing.TB
	nodes  []*Server
	owners [slotCount]*Server
}

// StartCluster runs a cluster of so many masters with the given further arguments, and returns when every node knows
// all others and says that the cluster is well. That takes Redis at least 2 s. A node counts as failed after a minute
// of silence, since one without CPU time may be silent for seconds, or with "--cluster-node-timeout", "1000" after one.
func StartCluster(tb testing.TB, masters int, args ...string) *Cluster {
	tb.Helper()
	if masters < 1 || masters > slotCount {
		tb.Fatalf("redisserver: a cluster of %d masters", masters)
	}
	c := &Cluster{tb: tb}
	for range masters {
		c.nodes = append(c.nodes, Start(tb, append([]string{
			"--cluster-enabled", "yes",
			"--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "60000",
			"--cluster-announce-ip", "127.0.0.1",
		}, args...)...))
	}
	for i, node := range c.nodes {
		first, last := i*slotCount/masters, (i+1)*slotCount/masters-1
		assign(tb, node, first, last)
		for slot := first; slot <= last; slot++ {
			c.owners[slot] = node
		}
		// Nodes that meet with the same epoch would have to settle who keeps it.
		must(tb, node, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for _, node := range c.nodes[1:] {
		must(tb, node, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(c.nodes[0].port))
	}
	for _, node := range c.nodes {
		var info string
		if !poll(func() bool {
			info = node.info("CLUSTER", "INFO")
			return field(info, "cluster_state") == "ok" &&
				field(info, "cluster_known_nodes") == strconv.Itoa(masters) &&
				field(info, "cluster_size") == strconv.Itoa(masters)
		}) {
			tb.Fatalf("redisserver: the cluster does not form, says %s:\n%s", node.Addr(), info)
		}
	}
	return c
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, node := range c.nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// Nodes are the servers of the cluster, to be paused or killed one by one.
func (c *Cluster) Nodes() []*Server { return slices.Clone(c.nodes) }

// Owner is the node that has the slot of the key, also while it is down.
func (c *Cluster) Owner(key string) *Server {
	c.tb.Helper()
	return c.owners[c.slot(key)]
}

// slot asks any node that is there.
func (c *Cluster) slot(key string) int {
	c.tb.Helper()
	var err error
	for _, node := range c.nodes {
		var reply any
		if reply, err = node.Do("CLUSTER", "KEYSLOT", key); err == nil {
			return int(reply.(int64))
		}
	}
	c.tb.Fatalf("redisserver: no node tells the slot of %.40q: %v", key, err)
	return 0
}

// assign gives a node the slots from first to last.
func assign(tb testing.TB, node *Server, first, last int) {
	tb.Helper()
	if _, err := node.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)); err == nil {
		return
	}
	// Redis knows ranges from 7.0 on.
	args := []string{"CLUSTER", "ADDSLOTS"}
	for slot := first; slot <= last; slot++ {
		args = append(args, strconv.Itoa(slot))
	}
	must(tb, node, args...)
}

func must(tb testing.TB, s *Server, args ...string) any {
	tb.Helper()
	reply, err := s.do(doTimeout, args)
	if err != nil {
		tb.Fatalf("redisserver: %.40q to %s: %v", args, s.Addr(), err)
	}
	return reply
}
