package redisserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// StartTLS is [Start] with a server that speaks TLS and nothing else. It has a
// certificate of its own, which only [Server.TLSConfig] trusts.
func StartTLS(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := prepare(tb, nil)
	crt, key, err := s.certify()
	if err != nil {
		tb.Fatalf("redisserver: %v", err)
	}
	s.args = append([]string{
		"--port", "0",
		"--tls-cert-file", crt,
		"--tls-key-file", key,
		"--tls-ca-cert-file", crt,
		"--tls-auth-clients", "no",
	}, args...)
	s.start()
	return s
}

// TLSConfig is what clients of a server with TLS need, and nil for others. That
// of another server is one with the wrong authority.
func (s *Server) TLSConfig() *tls.Config { return s.tls.Clone() }

// certify makes a certificate that vouches for itself, and the files with it and
// its key.
func (s *Server) certify() (crt, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	parsed, err := x509.ParseCertificate(certificate)
	if err != nil {
		return "", "", err
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	s.tls = &tls.Config{RootCAs: roots}

	crt, key = filepath.Join(s.dir, "redis.crt"), filepath.Join(s.dir, "redis.key")
	if err := writePEM(crt, "CERTIFICATE", certificate); err != nil {
		return "", "", err
	}
	return crt, key, writePEM(key, "PRIVATE KEY", secret)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
