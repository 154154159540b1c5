// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/weft-net/weft/internal/model"
)

// The headers by which the page's own script is recognized: no form and no link of another page can send them.
const (
	RequestHeader = "X-Weft-Request"
	TokenHeader   = "X-Weft-Token"
)

// policy is the Content-Security-Policy: the page loads and sends nothing from and to elsewhere, and no page frames it.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"

// secretBytes is the length of tokens and cookies.
const secretBytes = 32

// session admits the browser that presents the token, by a cookie.
type session struct {
	host string // of the Host header: address and port
	port string

	mu     sync.Mutex
	random io.Reader
	// token opens one browser, and is empty afterwards. cookies are hashes of those that were issued.
	token   string
	cookies map[[sha256.Size]byte]bool
}

func newSession(host string, random io.Reader) (*session, error) {
	_, port, err := net.SplitHostPort(host)
	return &session{host: host, port: port, random: random, cookies: map[[sha256.Size]byte]bool{}}, err
}

// secretLocked returns a new token or cookie.
func (s *session) secretLocked() (string, error) {
	b := make([]byte, secretBytes)
	if _, err := io.ReadFull(s.random, b); err != nil {
		return "", fmt.Errorf("random number: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// Token returns the token that opens the next browser; one that was used is replaced.
func (s *session) Token() (_ string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == "" {
		s.token, err = s.secretLocked()
	}
	return s.token, err
}

// cookieName differs by port: browsers send a host's cookies to all its ports.
func (s *session) cookieName() string { return "weft-" + s.port }

// guard refuses requests to another name or from another page, and sets the headers of all responses.
func (s *session) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if r.Host != s.host && r.Host != "localhost:"+s.port {
			refuse(w, http.StatusMisdirectedRequest, "this page is only at http://"+s.host)
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
			refuse(w, http.StatusForbidden, "requests of other pages are refused")
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get(RequestHeader) == "" {
			refuse(w, http.StatusForbidden, "the header "+RequestHeader+" is missing")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// open exchanges the token for a cookie. The token is void then.
func (s *session) open(w http.ResponseWriter, r *http.Request) {
	if s.has(r) { // a page that is reloaded
		w.WriteHeader(http.StatusNoContent)
		return
	}
	given := r.Header.Get(TokenHeader)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == "" || subtle.ConstantTimeCompare([]byte(given), []byte(s.token)) != 1 {
		refuse(w, http.StatusUnauthorized, "the token was used already, or is another page's; press Enter where weft ui runs for another link")
		return
	}
	value, err := s.secretLocked()
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	s.token = ""
	s.cookies[sha256.Sum256([]byte(value))] = true
	http.SetCookie(w, &http.Cookie{
		Name: s.cookieName(), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	w.WriteHeader(http.StatusNoContent)
}

func (s *session) has(r *http.Request) bool {
	c, err := r.Cookie(s.cookieName())
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cookies[sha256.Sum256([]byte(c.Value))] // hashed: the time of a look-up does not depend on it
}

// required refuses requests without the cookie.
func (s *session) required(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.has(r) {
			refuse(w, http.StatusUnauthorized, "this browser has no session: open the link that weft ui prints")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Failure is why something could not be done.
type Failure struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

func failure(err error) Failure {
	f := Failure{Error: err.Error()}
	var known *model.Error
	if errors.As(err, &known) && known.Hint != "" {
		f.Hint = known.Hint
		f.Error = strings.TrimSuffix(f.Error, " ("+known.Hint+")")
	}
	return f
}

func refuse(w http.ResponseWriter, code int, why string) { writeJSON(w, code, Failure{Error: why}) }

func writeJSON(w http.ResponseWriter, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		code, b = http.StatusInternalServerError, []byte(`{"error": "the response cannot be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(b)
}
