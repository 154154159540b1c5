// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/dhcp/lease"
	"github.com/weft-net/weft/internal/model"
)

// The result has what a real server sends, and each option of the configuration takes effect.
func TestResult(t *testing.T) {
	const (
		dns     = "--dhcp-option=option:dns-server,10.9.0.53,10.9.0.54"
		search  = "--dhcp-option=option:domain-search,a.example.org,b.example.org"
		classes = "--dhcp-option=121,10.7.0.0/16,10.9.0.7,192.168.9.0/24,0.0.0.0,0.0.0.0/0,10.9.0.1"
	)
	for name, tc := range map[string]struct {
		server []string
		keys   string
		args   [][2]string
		want   string
		log    string // what dnsmasq must have seen
	}{
		"everything": {
			server: []string{dns, search, "--domain=example.org"},
			want:   `10.9.0.60/24 via 10.9.0.1, route 0.0.0.0/0 via 10.9.0.1, dns [10.9.0.53 10.9.0.54] "example.org" [a.example.org b.example.org]`,
		},
		"priority": {keys: `,"priority":7`, want: `10.9.0.60/24 via 10.9.0.1, route 0.0.0.0/0 via 10.9.0.1 priority 7`},
		"mtu": {
			server: []string{"--dhcp-option=option:mtu,1400", dns},
			want:   `10.9.0.60/24 via 10.9.0.1, route 0.0.0.0/0 via 10.9.0.1 mtu 1400, dns [10.9.0.53 10.9.0.54] "" []`,
		},
		"mtu of the link": {
			server: []string{"--dhcp-option=option:mtu,9000", dns},
			want:   `10.9.0.60/24 via 10.9.0.1, route 0.0.0.0/0 via 10.9.0.1, dns [10.9.0.53 10.9.0.54] "" []`,
		},
		"classful routes": {
			server: []string{"--dhcp-option=33,172.16.0.0,10.9.0.7,192.168.5.0,10.9.0.8", dns},
			want: `10.9.0.60/24 via 10.9.0.1, route 172.16.0.0/16 via 10.9.0.7, route 192.168.5.0/24 via 10.9.0.8, ` +
				`route 0.0.0.0/0 via 10.9.0.1, dns [10.9.0.53 10.9.0.54] "" []`,
		},
		"classless routes": {
			server: []string{classes, dns, "--dhcp-option=33,172.16.0.0,10.9.0.7"},
			want: `10.9.0.60/24 via 10.9.0.1, route 10.7.0.0/16 via 10.9.0.7, route 192.168.9.0/24 via 0.0.0.0 scope 253, ` +
				`route 0.0.0.0/0 via 10.9.0.1, dns [10.9.0.53 10.9.0.54] "" []`,
		},
		"no router": {server: []string{"--dhcp-option=3", dns}, want: `10.9.0.60/24, dns [10.9.0.53 10.9.0.54] "" []`},
		"only what is asked for": {
			server: []string{dns}, keys: `,"request":[{"skipDefault":true},{"option":"subnet-mask"},{"option":"42"}]`,
			want: `10.9.0.60/24`, log: "requested options: 1:netmask, 42:ntp-server",
		},
		"more is asked for": {
			keys: `,"request":[{"option":"routers"},{"option":"42"}]`,
			log:  "requested options: 3:router, 42:ntp-server, 1:netmask",
			want: `10.9.0.60/24 via 10.9.0.1, route 0.0.0.0/0 via 10.9.0.1`,
		},
		"provided": {
			keys: `,"provide":[{"option":"host-name","value":"alpha"},{"option":"60","value":"weft"},{"option":"user-class","fromArg":"K8S_POD_NAME"}]`,
			args: [][2]string{{"K8S_POD_NAME", "beta"}}, log: "client provides name: alpha|vendor class: weft|user class: beta",
			want: `10.9.0.60/24 via 10.9.0.1, route 0.0.0.0/0 via 10.9.0.1`,
		},
		"an argument goes before the value": {
			keys: `,"provide":[{"option":"host-name","value":"alpha","fromArg":"K8S_POD_NAME"}]`,
			args: [][2]string{{"K8S_POD_NAME", "gamma"}}, log: "client provides name: gamma",
			want: `10.9.0.60/24 via 10.9.0.1, route 0.0.0.0/0 via 10.9.0.1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			w.serve(append(tc.server, "--dhcp-range=10.9.0.60,10.9.0.60,255.255.255.0,2m")...)
			k := w.manager()
			a := req(w.pod(), "c1", tc.keys)
			a.Args = tc.args
			r := w.add(k, a)
			if got := show(r); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			log := strings.Join(strings.Fields(w.log.String()), " ")
			for _, want := range strings.Split(tc.log, "|") {
				if !strings.Contains(log, want) {
					t.Errorf("the server did not see %q", want)
				}
			}
			if err := k.Check(t.Context(), a, r); err != nil {
				t.Error(err)
			}
			w.gone(k, a)
		})
	}
}

// gone checks that DEL leaves nothing, on the node and at the server, and can be repeated.
func (w *wire) gone(k *lease.Manager, a ipam.Request) {
	w.t.Helper()
	for range 2 {
		if err := k.Del(w.t.Context(), a); err != nil {
			w.t.Error(err)
		}
	}
	w.until("the server has its address back", func() bool { return w.leased() == "" })
	if f := w.files(); len(f) > 0 {
		w.t.Errorf("files left: %v", f)
	}
	wantCode(w.t, "CHECK after DEL", k.Check(w.t.Context(), a, model.Result{}), model.CodeDiffers, "no lease")
}

func wantCode(t testing.TB, what string, err error, code model.Code, words ...string) {
	t.Helper()
	var f *model.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Errorf("%s: want code %d, got %v", what, code, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q is missing in: %v", what, w, err)
		}
	}
}

func TestResult6(t *testing.T) {
	for name, tc := range map[string]struct{ keys, want string }{
		"IPv6": {`,"ipv4":false,"ipv6":true`, `fd00:9::60/128, dns [fd00:9::53] "" [six.example.org]`},
		"both": {
			`,"ipv6":true`,
			`10.9.0.60/24 via 10.9.0.1, fd00:9::60/128, route 0.0.0.0/0 via 10.9.0.1, dns [fd00:9::53] "" [six.example.org]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			w.serve("--dhcp-range=10.9.0.60,10.9.0.60,255.255.255.0,2m", "--dhcp-range=fd00:9::60,fd00:9::60,64,2m",
				"--dhcp-option=option6:dns-server,[fd00:9::53]", "--dhcp-option=option6:domain-search,six.example.org")
			k := w.manager()
			a := req(w.pod(), "c1", tc.keys)
			r := w.add(k, a)
			if got := show(r); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if err := k.Check(t.Context(), a, r); err != nil {
				t.Error(err)
			}
			w.gone(k, a)
		})
	}
}

// A repeated ADD returns the same lease; another container has another one.
func TestSameAgain(t *testing.T) {
	w := newWire(t)
	w.serve(range4)
	k := w.manager()
	a, b := req(w.pod(), "c1", ""), req(w.pod(), "c2", "")
	first, other, again := show(w.add(k, a)), show(w.add(k, b)), show(w.add(k, a))
	if first != again || first == other {
		t.Errorf("first %s, other %s, again %s", first, other, again)
	}
	if n := len(strings.Fields(w.leased())); n != 2 {
		t.Errorf("the server has given %d addresses", n)
	}
	if err := k.GC(t.Context(), a, []model.AttachmentKey{b.Key()}); err != nil {
		t.Error(err)
	}
	w.until("GC", func() bool { return len(strings.Fields(w.leased())) == 1 && len(w.files()) == 1 })
	if err := k.Check(t.Context(), b, w.add(k, b)); err != nil {
		t.Errorf("GC took a valid lease: %v", err)
	}
	foreign := b
	foreign.Network = "other"
	if err := k.GC(t.Context(), foreign, nil); err != nil || len(w.files()) != 1 {
		t.Errorf("GC of another network: %v, %v", err, w.files())
	}
	w.gone(k, b)
}

// Without a server an ADD fails after its timeout, and leaves nothing.
func TestNoServer(t *testing.T) {
	w := newWire(t)
	k := w.manager(func(c *lease.Config) { c.Exchange.ResendTimeout = 2 * time.Second })
	a := req(w.pod(), "c1", "")
	begin := time.Now()
	_, err := k.Add(t.Context(), a)
	wantCode(t, "ADD", err, model.CodeTryAgain, "DHCPv4 on eth0: no DHCP server answered", "is there a DHCP server")
	if d := time.Since(begin); d < time.Second || d > 20*time.Second {
		t.Errorf("it took %s", d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin = time.Now()
	if _, err := k.Add(ctx, a); err == nil || time.Since(begin) > 20*time.Second {
		t.Errorf("ADD that was given up: %v after %s", err, time.Since(begin))
	}
	if f := w.files(); len(f) > 0 {
		t.Errorf("files left: %v", f)
	}
	a.IfName = "eth7"
	_, err = k.Add(t.Context(), a)
	wantCode(t, "no interface", err, model.CodeIO, `interface "eth7"`, "no such interface")
	a.Netns = filepath.Join(w.dir, "nowhere")
	_, err = k.Add(t.Context(), a)
	wantCode(t, "no namespace", err, model.CodeInvalidNetns, "nowhere")
}

// A directory is used by one process; leases of another boot are void; an unreadable file is not changed.
func TestDirectory(t *testing.T) {
	w := newWire(t)
	w.serve(range4)
	k := w.manager()
	a := req(w.pod(), "c1", "")
	w.add(k, a)
	_, err := lease.Open(w.config())
	wantCode(t, "second manager", err, model.CodeExists, "another process keeps it")
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(w.dir, "leases", "foreign.json")
	if err := os.WriteFile(foreign, []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	k = w.manager(func(c *lease.Config) { c.Boot = "another" })
	if f := w.files(); len(f) != 1 || f[0] != foreign {
		t.Errorf("files: %v", f)
	}
	if err := k.Check(t.Context(), a, model.Result{}); err == nil {
		t.Error("a lease of another boot")
	}
	if !strings.Contains(w.log.String(), "version 2, this program knows 1") {
		t.Error("nothing is said about the foreign file")
	}
}

// identity returns the identity that the server recorded for its only client.
func (w *wire) identity() string {
	b, _ := os.ReadFile(w.leases)
	f := strings.Fields(string(b))
	if len(f) < 5 {
		return ""
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(f[4], ":", ""))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(raw)
}

// The client identifies itself like the reference plugin, unless the configuration has another identity; DEL uses the
// same one.
func TestClientIdentifier(t *testing.T) {
	w := newWire(t)
	w.serve(range4)
	k := w.manager()
	for keys, want := range map[string]string{
		"": "\x00c1/net/eth0",
		`,"provide":[{"option":"dhcp-client-identifier","value":"\u0001mine"}]`: "\x01mine",
	} {
		a := req(w.pod(), "c1", keys)
		w.add(k, a)
		if got := w.identity(); got != want {
			t.Errorf("client %q, want %q", got, want)
		}
		w.gone(k, a)
	}
}
