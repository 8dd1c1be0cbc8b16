package adapter

import "net/http"

// Refuse is for adapters on net/http: it answers with status unless the handler writes another one.
func Refuse(w http.ResponseWriter, status int, answer func(http.ResponseWriter)) {
	r := &refusal{ResponseWriter: w, status: status}
	answer(r)
	r.begin()
}

type refusal struct {
	http.ResponseWriter
	status int // to be written, unless it is zero
}

func (r *refusal) WriteHeader(status int) {
	if status >= http.StatusOK { // not 103, say
		r.status = 0
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *refusal) Write(b []byte) (int, error) {
	r.begin()
	return r.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController calls: without it, a flush would write status 200.
func (r *refusal) FlushError() error {
	r.begin()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

func (r *refusal) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *refusal) begin() {
	if r.status != 0 {
		r.WriteHeader(r.status)
	}
}
