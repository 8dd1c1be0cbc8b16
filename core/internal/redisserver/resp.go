package redisserver

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ReplyError is an error that Redis replied, such as "WRONGTYPE ...", as
// opposed to one of the connection.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// encode writes a command as an array of bulk strings.
func encode(args []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

// decode reads one reply of RESP2. An error reply is a value: the error it
// returns is of the reading.
func decode(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line, ok := strings.CutSuffix(line, "\r\n")
	if !ok || line == "" {
		return nil, fmt.Errorf("redisserver: not a reply: %q", line)
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '+':
		return text, nil
	case '-':
		return ReplyError(text), nil
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case '$':
		return decodeBulk(r, text)
	case '*':
		return decodeArray(r, text)
	default:
		return nil, fmt.Errorf("redisserver: not a reply of RESP2: %q", line)
	}
}

func decodeBulk(r *bufio.Reader, length string) (any, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 {
		return nil, err // a length of -1 means nil
	}
	bulk := make([]byte, n+len("\r\n"))
	if _, err := io.ReadFull(r, bulk); err != nil {
		return nil, err
	}
	return string(bulk[:n]), nil
}

func decodeArray(r *bufio.Reader, length string) (any, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 {
		return nil, err // a length of -1 means nil
	}
	array := make([]any, n)
	for i := range array {
		if array[i], err = decode(r); err != nil {
			return nil, err
		}
	}
	return array, nil
}

// field finds the value of "name:value" among the lines of an INFO reply.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
