package redisserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// StartFake runs a server that replies whatever the test likes, and returns its
// address. It sends what answer returns, byte for byte, be it a reply or not; a
// client waits in vain for what is missing. To "" it sends the error for an unknown
// command, after which clients do without what they ask for first, such as HELLO.
//
// The name of the command comes in upper case. There is one call at a time.
func StartFake(tb testing.TB, answer func(command []string) string) (addr string) {
	tb.Helper()
	var mu sync.Mutex
	l := listen(tb)
	l.run(func(conn net.Conn) { // it ends at what is no command
		commands := bufio.NewReader(conn)
		for {
			command, err := decodeCommand(commands)
			if err != nil {
				return
			}
			mu.Lock()
			reply := answer(command)
			mu.Unlock()
			if reply == "" {
				reply = fmt.Sprintf("-ERR unknown command '%s'\r\n", command[0])
			}
			if _, err := io.WriteString(conn, reply); err != nil {
				return
			}
		}
	})
	return l.Addr().String()
}

// decodeCommand reads what encode writes.
func decodeCommand(r *bufio.Reader) ([]string, error) {
	value, err := decode(r)
	if err != nil {
		return nil, err
	}
	array, _ := value.([]any)
	if len(array) == 0 {
		return nil, fmt.Errorf("redisserver: not a command: %v", value)
	}
	command := make([]string, len(array))
	for i, arg := range array {
		command[i] = fmt.Sprint(arg)
	}
	command[0] = strings.ToUpper(command[0])
	return command, nil
}
