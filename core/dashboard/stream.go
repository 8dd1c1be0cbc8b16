package dashboard

import (
	"fmt"
	"net/http"
	"time"
)

const (
	pageLife     = time.Minute      // after which a page connects again, so that servers can shut down
	writeTimeout = 10 * time.Second // of one message
)

// stream sends server-sent events until the page is closed. Where a response is not passed on before it ends, as behind
// [http.TimeoutHandler] and in fiber, it sends one event, and the page connects again a second later. Such responses
// have no deadline; a Flush that does nothing cannot be told from one that works.
func (h *handler) stream(w http.ResponseWriter, r *http.Request) {
	p, closed := h.board.open(h.identities, h.mayAct(r))
	if p == nil {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer h.board.close(p)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would collect events
	flusher := http.NewResponseController(w)
	life := time.NewTimer(pageLife)
	defer life.Stop()
	fmt.Fprint(w, "retry: 1000\n\n")
	for {
		select {
		case m := <-p.messages:
			collected := flusher.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil
			if _, err := fmt.Fprintf(w, "data: %s\n\n", m); err != nil || flusher.Flush() != nil || collected {
				return
			}
		case <-life.C:
			return
		case <-closed:
			return
		case <-r.Context().Done():
			return
		}
	}
}
