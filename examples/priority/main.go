// Priority runs the jobs of the customers first that have used least in the last hour, so that a customer who floods
// the queue does not delay the others.
package main

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"log"

	"github.com/sashlimit/sash/core"
)

type job struct {
	customer string
	used     int // by that customer in the hour before
	number   int
}

type queue []job

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].used, q[j].used), cmp.Compare(q[i].number, q[j].number)) < 0
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(j any)   { *q = append(*q, j.(job)) } //nolint:forcetypeassert // nothing else is pushed
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func main() {
	usage, err := core.New(core.PerHour(100), core.ByText())
	if err != nil {
		log.Fatal(err)
	}
	var jobs queue
	number := 0
	for _, customer := range []string{
		"flood", "flood", "flood", "flood", "flood", "flood", "flood", "flood", "ann", "ann",
	} {
		d, err := usage.Record(context.Background(), customer, 1) // never denies
		if err != nil {
			log.Fatal(err)
		}
		number++
		heap.Push(&jobs, job{customer, d.Used, number})
	}
	fmt.Println("flood sent 8 jobs, then ann 2. They run in this order, so that ann hardly waits:")
	for jobs.Len() > 0 {
		j := jobs[0]
		heap.Pop(&jobs)
		fmt.Printf("job %2d of %-5s  who had used %d\n", j.number, j.customer, j.used)
	}
}
