package redisserver

import (
	"fmt"
	"strconv"
)

// Move takes one slot of a cluster from one node to another, step by step.
type Move struct {
	c        *Cluster
	key      string
	slot     int
	from, to *Server
}

// BeginMove announces that the slot of the key goes to another node. From now on
// its owner answers ASK for a key that it does not have, and TRYAGAIN (Redis 6: ASK)
// where it has only some of several keys. All nodes must be up until the move is over.
func (c *Cluster) BeginMove(key string, to *Server) *Move {
	c.tb.Helper()
	slot := c.slot(key)
	m := &Move{c: c, key: key, slot: slot, from: c.owners[slot], to: to}
	m.set(to, "IMPORTING", m.from)
	m.set(m.from, "MIGRATING", to)
	return m
}

// MoveKeys moves the keys, after which the owner answers ASK for all of them.
func (m *Move) MoveKeys() {
	tb := m.c.tb
	tb.Helper()
	for {
		reply := must(tb, m.from, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(m.slot), "100")
		keys := reply.([]any)
		if len(keys) == 0 {
			return
		}
		migrate := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(m.to.port), "", "0", "1000", "KEYS"}
		for _, key := range keys {
			migrate = append(migrate, key.(string))
		}
		must(tb, m.from, migrate...)
	}
}

// End makes the new node the owner and returns when all answer MOVED.
func (m *Move) End() {
	tb := m.c.tb
	tb.Helper()
	m.set(m.to, "NODE", m.to) // first, so that the slot has an owner at any time
	for _, node := range m.c.nodes {
		m.set(node, "NODE", m.to)
	}
	m.c.owners[m.slot] = m.to
	moved := fmt.Sprintf("MOVED %d %s", m.slot, m.to.Addr())
	for _, node := range m.c.nodes {
		var says string
		if !poll(func() bool {
			says = node.info("EXISTS", m.key)
			return says == moved || node == m.to && (says == "0" || says == "1")
		}) {
			tb.Fatalf("redisserver: slot %d is at %s, but %s says %s", m.slot, m.to.Addr(), node.Addr(), says)
		}
	}
}

// set tells a node what becomes of the slot, and which other node is concerned.
func (m *Move) set(node *Server, state string, other *Server) {
	m.c.tb.Helper()
	id := must(m.c.tb, other, "CLUSTER", "MYID")
	must(m.c.tb, node, "CLUSTER", "SETSLOT", strconv.Itoa(m.slot), state, id.(string))
}
