package signedagents_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/recipes/signedagents"
	"github.com/sashlimit/sash/nethttp"
)

const quota = 5

// site is a server that knows the agent ann, and whose clients come from several addresses.
type site struct {
	t       *testing.T
	host    string
	ann     ed25519.PrivateKey
	mallory ed25519.PrivateKey // whom it does not know
	clients map[string]*http.Client
}

func newSite(t *testing.T) *site {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skip("this system has only one loopback address: ", err)
	}
	listener.Close()
	s := &site{t: t, ann: key(t), mallory: key(t), clients: map[string]*http.Client{}}
	agents := signedagents.Agents{"ann": s.ann.Public().(ed25519.PublicKey)}
	limit := nethttp.New(core.PerHour(quota), agents.Key(), core.WithName("agents"))
	server := httptest.NewServer(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	for _, address := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		transport := &http.Transport{DialContext: dialer.DialContext}
		t.Cleanup(transport.CloseIdleConnections)
		s.clients[address] = &http.Client{Transport: transport}
	}
	return s
}

func key(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return private
}

// signature is what an agent, or somebody who would like to be one, puts into the header.
type signature struct {
	key              ed25519.PrivateKey
	id, tag          string
	method, path, at string // what is signed, if it is not empty
	created, expires time.Duration
	unbound          bool // without the authority
}

func (s *site) signed(by signature) http.Header {
	at := by.at
	if at == "" {
		at = s.host
	}
	var base, names string
	for _, c := range [][2]string{
		{`"@authority"`, at}, {`"@method"`, by.method}, {`"@path"`, by.path},
		{`"signature-agent";key="a"`, `"https://agent.example"`},
	} {
		if c[1] != "" && (c[0] != `"@authority"` || !by.unbound) {
			base += c[0] + ": " + c[1] + "\n"
			names += " " + c[0]
		}
	}
	now := time.Now()
	params := fmt.Sprintf(`(%s);created=%d;expires=%d;keyid=%q;alg="ed25519";nonce="n";tag=%q`,
		strings.TrimSpace(names), now.Add(by.created).Unix(), now.Add(by.expires).Unix(), by.id, by.tag)
	text := ed25519.Sign(by.key, []byte(base+`"@signature-params": `+params))
	return http.Header{
		"Signature-Agent": {`a="https://agent.example"`},
		"Signature-Input": {"sig=" + params},
		"Signature":       {"sig=:" + base64.StdEncoding.EncodeToString(text) + ":"},
	}
}

// send sends a request from an address, and returns its status and what is left of the quota that it used.
func (s *site) send(address string, header http.Header) (status int, left string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.host+"/a%2Fb?q=1", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = header.Clone()
	w, err := s.clients[address].Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	w.Body.Close()
	_, left, _ = strings.Cut(w.Header.Get("RateLimit"), "r=")
	left, _, _ = strings.Cut(left, ";")
	return w.StatusCode, left
}

func annSigns(s *site) signature {
	return signature{key: s.ann, id: "ann", tag: "web-bot-auth", created: -time.Second, expires: time.Minute}
}

// An agent has one quota over all of its addresses, and those who share an address with it have theirs.
func TestAgent(t *testing.T) {
	s := newSite(t)
	by := annSigns(s)
	by.method, by.path = http.MethodGet, "/a%2Fb"
	for i := range quota {
		address := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}[i%3]
		if status, left := s.send(address, s.signed(by)); status != 200 || left != fmt.Sprint(quota-1-i) {
			t.Errorf("request %d of the agent: %d, %s left", i+1, status, left)
		}
	}
	if status, _ := s.send("127.0.0.3", s.signed(by)); status != http.StatusTooManyRequests {
		t.Errorf("above the quota: %d", status)
	}
	if status, left := s.send("127.0.0.3", nil); status != 200 || left != "4" {
		t.Errorf("an unsigned request from the agent's address: %d, %s left", status, left)
	}
}

// Nobody uses an agent's quota without its key, a fresh signature, or for another site: wrong signatures use the quota
// of their sender's address, and nothing else.
func TestForged(t *testing.T) {
	type change = func(*site, *signature)
	by := func(c change) func(*site) http.Header { // signed in a way of its own
		return func(s *site) http.Header {
			as := annSigns(s)
			c(s, &as)
			return s.signed(as)
		}
	}
	edit := func(field, from, to string) func(*site) http.Header { // changed after it was signed
		return func(s *site) http.Header {
			h := s.signed(annSigns(s))
			before := h.Get(field)
			h.Set(field, strings.Replace(before, from, to, 1))
			if h.Get(field) == before {
				s.t.Errorf("%s has no %s", before, from)
			}
			return h
		}
	}
	for name, header := range map[string]func(*site) http.Header{
		"another key":          by(func(s *site, as *signature) { as.key = s.mallory }),
		"an unknown agent":     by(func(s *site, as *signature) { as.key, as.id = s.mallory, "mallory" }),
		"no agent":             by(func(_ *site, as *signature) { as.id = "" }),
		"for another site":     by(func(_ *site, as *signature) { as.at = "site.example" }),
		"for any site":         by(func(_ *site, as *signature) { as.unbound = true }),
		"of another method":    by(func(_ *site, as *signature) { as.method = http.MethodPost }),
		"of another path":      by(func(_ *site, as *signature) { as.path = "/a/b" }),
		"for another purpose":  by(func(_ *site, as *signature) { as.tag = "payment" }),
		"expired":              by(func(_ *site, as *signature) { as.created, as.expires = -time.Hour, -time.Second }),
		"of the future":        by(func(_ *site, as *signature) { as.created, as.expires = time.Minute, time.Hour }),
		"for ever":             by(func(_ *site, as *signature) { as.expires = 25 * time.Hour }),
		"expiry put off":       edit("Signature-Input", ";nonce", ";expires=9999999999;nonce"),
		"without an expiry":    edit("Signature-Input", ";expires=", ";later="),
		"another agent's name": edit("Signature-Agent", "agent.example", "mallory.example"),
		"without a signature":  edit("Signature", "sig=", "other="),
		"a short signature":    edit("Signature", "sig=:", "sig=:AAAA:, more=:"),
		"not bytes":            edit("Signature", "sig=:", `sig="text", more=:`),
		"not a list":           edit("Signature-Input", "sig=(", "sig=1, other=("),
		"not a dictionary":     edit("Signature-Input", "sig=(", "sig=(("),
		"no dictionary":        edit("Signature", "sig=:", "sig=::"),
		"of something unknown": edit("Signature-Input", `("@authority"`, `("@authority" "@status"`),
		"of a field in parts":  edit("Signature-Input", `("@authority"`, `("@authority";sf`),
		"twice the same":       edit("Signature-Input", `("@authority"`, `("@authority" "@authority"`),
		"of a missing member":  edit("Signature-Input", `key="a"`, `key="b"`),
		"of a missing field":   edit("Signature-Input", `("@authority"`, `("@authority" "date"`),
		"labels mixed up": func(s *site) http.Header {
			h := s.signed(annSigns(s))
			h.Add("Signature", "other="+strings.TrimPrefix(h.Get("Signature"), "sig="))
			h["Signature"][0] = "sig=:AAAA:"
			return h
		},
		"of a hundred members": func(s *site) http.Header {
			h := s.signed(annSigns(s))
			var fields, names string
			for i := range 100 {
				fields += fmt.Sprintf("k%d, ", i)
				names += fmt.Sprintf(` "x";key="k%d"`, i)
			}
			h.Set("X", fields+"k=1")
			h.Set("Signature-Input", `sig=("@authority"`+names+`);keyid="ann";tag="web-bot-auth"`)
			return h
		},
		"unsigned": func(*site) http.Header { return http.Header{"Signature-Agent": {`"ann"`}, "Keyid": {"ann"}} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if status, left := s.send("127.0.0.2", header(s)); status != 200 || left != "4" {
				t.Errorf("%d, %s left", status, left)
			}
			if status, left := s.send("127.0.0.2", nil); status != 200 || left != "3" {
				t.Errorf("then from this address, unsigned: %d, %s left", status, left)
			}
			if status, left := s.send("127.0.0.2", s.signed(annSigns(s))); status != 200 || left != "4" {
				t.Errorf("then from this address, by the agent: %d, %s left", status, left)
			}
		})
	}
}

// The signature base is that of the worked example in RFC 9421, B.2.6, but for its last line, which has what Web Bot
// Auth asks for in addition.
func TestBase(t *testing.T) {
	private := key(t)
	agents := signedagents.Agents{"test-key-ed25519": private.Public().(ed25519.PublicKey)}
	now := time.Now().Unix()
	params := fmt.Sprintf(`("date" "@method" "@path" "@authority" "content-type" "content-length")`+
		`;created=%d;keyid="test-key-ed25519";expires=%d;tag="web-bot-auth"`, now, now+60)
	const lines = `"date": Tue, 20 Apr 2021 02:07:55 GMT
"@method": POST
"@path": /foo
"@authority": example.com
"content-type": application/json
"content-length": 18
`
	text := ed25519.Sign(private, []byte(lines+`"@signature-params": `+params))
	r := httptest.NewRequest(http.MethodPost, "https://example.com/foo?param=Value&Pet=dog", nil)
	r.Host = "Example.COM"
	r.Header = http.Header{
		"Date": {"Tue, 20 Apr 2021 02:07:55 GMT"}, "Content-Type": {"application/json"}, "Content-Length": {"18"},
		"Signature-Input": {"sig-b26=" + params},
		"Signature":       {"sig-b26=:" + base64.StdEncoding.EncodeToString(text) + ":"},
	}
	if id, err := agents.Signer(r); id != "test-key-ed25519" || err != nil {
		t.Error(id, err)
	}
}
