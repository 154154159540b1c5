// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

func req(conf, id string) ipam.Request {
	return ipam.Request{Conf: json.RawMessage(conf), Network: "net", ContainerID: id, IfName: "eth0"}
}

func section(ipamJSON string) string {
	return `{"cniVersion":"1.0.0","name":"net","type":"bridge","ipam":` + ipamJSON + `}`
}

func fault(t *testing.T, err error) *model.Error {
	t.Helper()
	var f *model.Error
	if !errors.As(err, &f) {
		t.Fatalf("error %v (%T), want a *model.Error", err, err)
	}
	return f
}

func prefixes(r model.Result) string {
	var out []string
	for _, ip := range r.IPs {
		out = append(out, ip.Address.String()+" via "+ip.Gateway.String())
	}
	return strings.Join(out, ", ")
}

func TestFilesAreThoseOfTheReferencePlugin(t *testing.T) {
	dir := t.TempDir()
	a := New(Config{DataDir: dir})
	conf := section(
		`{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]],"routes":[{"dst":"0.0.0.0/0"}]}`,
	)
	r, err := a.Add(context.Background(), req(conf, "c1"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := prefixes(r), "10.1.0.2/24 via 10.1.0.1, fd00::2/64 via fd00::1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want := map[string]string{
		"10.1.0.2": "c1\r\neth0", "fd00::2": "c1\r\neth0",
		"last_reserved_ip.0": "10.1.0.2", "last_reserved_ip.1": "fd00::2", "lock": "",
	}
	if diff := cmp.Diff(want, tree(t, filepath.Join(dir, "net"))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if err := a.Del(context.Background(), req(conf, "c1")); err != nil {
		t.Fatal(err)
	}
	if err := a.Del(context.Background(), req(conf, "c1")); err != nil {
		t.Errorf("second DEL: %v", err)
	}
	delete(want, "10.1.0.2")
	delete(want, "fd00::2")
	if diff := cmp.Diff(want, tree(t, filepath.Join(dir, "net"))); diff != "" {
		t.Errorf("files after DEL (-want +got):\n%s", diff)
	}
}

func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(b)
	}
	return out
}

func TestRoundRobinSkipsWhatHostsCannotHave(t *testing.T) {
	a := New(Config{DataDir: t.TempDir(), CallerKnows: true})
	conf := section(
		`{"type":"host-local","subnet":"10.1.0.0/29","rangeStart":"10.1.0.0","rangeEnd":"10.1.0.7","gateway":"10.1.0.3"}`,
	)
	var got []string
	for i := range 5 {
		r, err := a.Add(context.Background(), req(conf, fmt.Sprint("c", i)))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.IPs[0].Address.Addr().String())
	}
	if want := "10.1.0.1 10.1.0.2 10.1.0.4 10.1.0.5 10.1.0.6"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	_, err := a.Add(context.Background(), req(conf, "more"))
	if f := fault(t, err); f.Code != model.CodeExhausted || !strings.Contains(f.Msg, "10.1.0.0-10.1.0.7") || f.Hint == "" {
		t.Errorf("exhausted: %+v", f)
	}
	// The address released last is not the one allocated next.
	for _, id := range []string{"c0", "c3"} {
		if err := a.Del(context.Background(), req(conf, id)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := a.Add(context.Background(), req(conf, "new"))
	if err != nil || r.IPs[0].Address.Addr().String() != "10.1.0.1" {
		t.Errorf("after the end comes the beginning: %v %v", r, err)
	}
}

func TestSecondAddIsAnError(t *testing.T) {
	a := New(Config{DataDir: t.TempDir()})
	conf := section(`{"type":"host-local","subnet":"10.1.0.0/24"}`)
	if _, err := a.Add(context.Background(), req(conf, "c1")); err != nil {
		t.Fatal(err)
	}
	_, err := a.Add(context.Background(), req(conf, "c1"))
	if want := "10.1.0.2 has been allocated to c1, duplicate allocation is not allowed"; fault(t, err).Msg != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestRequestedAddresses(t *testing.T) {
	const two = `{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]]}`
	for name, tc := range map[string]struct {
		conf string
		args [][2]string
		want string
		code model.Code
	}{
		"CNI_ARGS": {
			conf: section(two), args: [][2]string{{"IP", "10.1.0.9"}}, want: "10.1.0.9/24 via 10.1.0.1, fd00::2/64 via fd00::1",
		},
		"CNI_ARGS of Multus": {
			conf: section(two), args: [][2]string{{"IP", "10.1.0.9,fd00::9"}}, want: "10.1.0.9/24 via 10.1.0.1, fd00::9/64 via fd00::1",
		},
		"args.cni.ips": {
			conf: strings.Replace(section(two), "{", `{"args":{"cni":{"ips":["fd00::7/64","10.1.0.7"]}},`, 1),
			want: "10.1.0.7/24 via 10.1.0.1, fd00::7/64 via fd00::1",
		},
		"runtimeConfig.ips": {
			conf: strings.Replace(section(two), "{", `{"runtimeConfig":{"ips":["10.1.0.8/24"]},`, 1),
			want: "10.1.0.8/24 via 10.1.0.1, fd00::2/64 via fd00::1",
		},
		"ipRanges": {
			conf: strings.Replace(section(two), "{", `{"runtimeConfig":{"ipRanges":[[{"subnet":"10.2.0.0/24"}]]},`, 1),
			want: "10.2.0.2/24 via 10.2.0.1, 10.1.0.2/24 via 10.1.0.1, fd00::2/64 via fd00::1",
		},
		"gateway":     {conf: section(two), args: [][2]string{{"IP", "10.1.0.1"}}, code: model.CodeInvalidConf},
		"outside":     {conf: section(two), args: [][2]string{{"IP", "10.9.0.1"}}, code: model.CodeInvalidConf},
		"nonsense":    {conf: section(two), args: [][2]string{{"IP", "ten"}}, code: model.CodeInvalidEnv},
		"unknown arg": {conf: section(two), args: [][2]string{{"FOO", "1"}}, code: model.CodeInvalidEnv},
		"unknown ignored": {
			conf: section(two), args: [][2]string{{"FOO", "1"}, {"IgnoreUnknown", "true"}},
			want: "10.1.0.2/24 via 10.1.0.1, fd00::2/64 via fd00::1",
		},
		"two of one range": {
			conf: strings.Replace(section(two), "{", `{"runtimeConfig":{"ips":["10.1.0.8","10.1.0.9"]},`, 1),
			code: model.CodeInvalidConf,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a := New(Config{DataDir: dir})
			q := req(tc.conf, "c1")
			q.Args = tc.args
			r, err := a.Add(context.Background(), q)
			if tc.code != 0 {
				if f := fault(t, err); f.Code != tc.code {
					t.Errorf("code %d (%v), want %d", f.Code, f, tc.code)
				}
				for name := range taken2(t, dir) {
					t.Errorf("%s is left behind", name)
				}
				return
			}
			if err != nil || prefixes(r) != tc.want {
				t.Errorf("got %s, %v, want %s", prefixes(r), err, tc.want)
			}
		})
	}
}

func taken2(t *testing.T, dir string) map[netip.Addr]bool {
	t.Helper()
	m, err := taken(filepath.Join(dir, "net"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestBadConfigurations(t *testing.T) {
	for _, tc := range []struct{ ipam, want string }{
		{`{"type":"host-local"}`, "no ranges"},
		{`{"subnet":"10.1.0.0/31"}`, "ipam.subnet 10.1.0.0/31 is too small"},
		{`{"subnet":"10.1.0.5/24"}`, "10.1.0.5/24 has host bits set"},
		{`{"subnet":"ten"}`, `ipam.subnet "ten"`},
		{`{"subnet":17}`, "ipam.subnet is number, want string"},
		{`{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.1","rangeEnd":"10.1.0.1"}`, "10.1.0.1"},
		{`{"subnet":"10.1.0.0/24","routes":[{"dst":"10.2.0.0/16"},{"dst":"far"}]}`, `ipam.routes[1].dst "far"`},
		{`{"subnet":"10.1.0.0/24","routes":[{"dst":"10.2.0.0/16","gw":"near"}]}`, `ipam.routes[0].gw "near"`},
		{`{"subnet":"10.1.0.0/24","routes":[{"dst":7}]}`, "ipam.routes[0].dst is number, want string"},
		{`{"subnet":"10.1.0.0/24","routes":{"dst":"10.2.0.0/16"}}`, "ipam.routes"},
		{`{"subnet":"10.1.0.0/24","rangeStart":"10.2.0.1"}`, "ipam.rangeStart 10.2.0.1 is not in subnet"},
		{`{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.9","rangeEnd":"10.1.0.3"}`, "ipam.rangeEnd 10.1.0.3"},
		{`{"subnet":"10.1.0.0/24","gateway":"fd00::1"}`, "ipam.gateway fd00::1 is not of the family"},
		{`{"ranges":[[]]}`, "ipam.ranges[0]: empty range set"},
		{`{"ranges":[[{"subnet":"10.1.0.0/24"},{"subnet":"fd00::/64"}]]}`, "mix address families"},
		{`{"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"10.1.0.0/16"}]]}`, "overlaps with ipam.ranges[0]"},
		{`{"ranges":[[{"subnet":"10.1.0.0/24"},{"subnet":"10.1.0.0/25"}]]}`, "overlap"},
		{`{"subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.1/8"}]}`, "ipam.routes[0].dst 10.0.0.1/8 has host bits set"},
	} {
		err := New(Config{}).Validate(json.RawMessage(section(tc.ipam)))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", tc.ipam, err, tc.want)
		}
	}
	old := `{"cniVersion":"0.2.0","ipam":{"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"10.2.0.0/24"}]]}}`
	if err := New(Config{}).Validate(json.RawMessage(old)); err == nil || !strings.Contains(err.Error(), "0.2.0") {
		t.Errorf("two IPv4 addresses in 0.2.0: %v", err)
	}
}

func TestLegacyFilesAndGC(t *testing.T) {
	dir := t.TempDir()
	a := New(Config{DataDir: dir})
	conf := section(`{"type":"host-local","subnet":"10.1.0.0/24"}`)
	net := filepath.Join(dir, "net")
	if err := os.MkdirAll(net, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"10.1.0.2": "old", "10.1.0.3": "gone", "10.1.0.4": "c1\r\neth0", "10.1.0.5": "c1\r\nnet1", "10.1.0.6": "",
		"notes": "mine",
	} {
		if err := os.WriteFile(filepath.Join(net, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	if err := a.Check(ctx, req(conf, "old"), model.Result{}); err != nil {
		t.Errorf("CHECK of a legacy file: %v", err)
	}
	for address, holds := range map[string]bool{"10.1.0.2/24": true, "10.1.0.9/24": false, "192.0.2.9/24": false} {
		prev := model.Result{IPs: []model.IP{{Address: netip.MustParsePrefix(address)}}}
		if err := a.Check(ctx, req(conf, "old"), prev); (err == nil) != holds {
			t.Errorf("CHECK of a prevResult with %s: %v", address, err)
		}
	}
	err := a.GC(ctx, req(conf, ""), []model.AttachmentKey{
		{ContainerID: "old", IfName: "eth0"}, {ContainerID: "c1", IfName: "eth0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"10.1.0.2": "old", "10.1.0.4": "c1\r\neth0", "lock": "", "notes": "mine"}
	if diff := cmp.Diff(want, tree(t, net)); diff != "" {
		t.Errorf("files after GC (-want +got):\n%s", diff)
	}
	if err := a.Del(ctx, req(conf, "old")); err != nil {
		t.Fatal(err)
	}
	if err := a.Check(ctx, req(conf, "old"), model.Result{}); fault(t, err).Code != model.CodeDiffers {
		t.Errorf("CHECK after DEL: %v", err)
	}
}

func TestDelNeedsNoConfiguration(t *testing.T) {
	dir := t.TempDir()
	a := New(Config{DataDir: dir})
	if _, err := a.Add(context.Background(), req(section(`{"type":"host-local","subnet":"10.1.0.0/24"}`), "c1")); err !=
		nil {
		t.Fatal(err)
	}
	for _, conf := range []string{"", "{", section(`{"subnet":"10.1.0.0/31"}`)} {
		if err := a.Del(context.Background(), req(conf, "c1")); err != nil {
			t.Errorf("DEL with configuration %q: %v", conf, err)
		}
	}
	if n := len(taken2(t, dir)); n != 0 {
		t.Errorf("%d addresses left", n)
	}
	held := req("", "c2")
	held.Held = []netip.Addr{netip.MustParseAddr("10.1.0.2")}
	other := filepath.Join(dir, "net", "10.1.0.2")
	if err := os.WriteFile(other, []byte("c3\r\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.Del(context.Background(), held); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("DEL of c2 took the address of c3: %v", err)
	}
}

func TestCheckAndStatus(t *testing.T) {
	ctx := context.Background()
	a := New(Config{DataDir: t.TempDir()})
	conf := section(`{"type":"host-local","subnet":"10.1.0.0/30"}`)
	if err := a.Status(ctx, req(conf, "")); err != nil {
		t.Errorf("STATUS before the first ADD: %v", err)
	}
	r, err := a.Add(ctx, req(conf, "c1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Check(ctx, req(conf, "c1"), r); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := a.Check(ctx, req(conf, "c2"), r); fault(t, err).Code != model.CodeDiffers {
		t.Errorf("CHECK of another container: %v", err)
	}
	if err := a.Status(ctx, req(conf, "")); err != nil {
		t.Errorf("STATUS of an exhausted range: %v", err)
	}
}

func TestParallelAddsNeverMeet(t *testing.T) {
	dir := t.TempDir()
	conf := section(`{"type":"host-local","subnet":"10.1.0.0/24"}`)
	one, two := New(Config{DataDir: dir, CallerKnows: true}), New(Config{DataDir: dir})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var mu sync.Mutex
	seen := map[netip.Addr]string{}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			a, id := one, fmt.Sprint("c", i)
			if i%2 == 1 {
				a = two // as another process: another descriptor of the lock
			}
			r, err := a.Add(ctx, req(conf, id))
			if err != nil {
				t.Errorf("%s: %v", id, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if other := seen[r.IPs[0].Address.Addr()]; other != "" {
				t.Errorf("%s and %s have %s", id, other, r.IPs[0].Address)
			}
			seen[r.IPs[0].Address.Addr()] = id
		})
	}
	wg.Wait()
	if len(seen) != 100 {
		t.Errorf("%d addresses, want 100", len(seen))
	}
}

func TestUnusableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(Config{
		DataDir: file,
	}).Add(context.Background(), req(section(`{"type":"host-local","subnet":"10.1.0.0/24"}`), "c1"))
	if f := fault(t, err); f.Code != model.CodeIO || !strings.Contains(f.Msg, file) {
		t.Errorf("got %+v, want code 5 naming %s", f, file)
	}
}

func TestResolvConf(t *testing.T) {
	name := filepath.Join(t.TempDir(), "resolv.conf")
	text := "# comment\nnameserver 10.0.0.1\nnameserver 10.0.0.2\ndomain x\nsearch a b\noptions ndots:5 rotate\n;more\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a := New(Config{DataDir: t.TempDir()})
	r, err := a.Add(context.Background(),
		req(section(`{"type":"host-local","subnet":"10.1.0.0/24","resolvConf":"`+name+`"}`), "c1"))
	if err != nil {
		t.Fatal(err)
	}
	want := model.DNS{
		Nameservers: []string{"10.0.0.1", "10.0.0.2"}, Domain: "x", Search: []string{"a", "b"},
		Options: []string{"ndots:5", "rotate"},
	}
	if diff := cmp.Diff(want, r.DNS); diff != "" {
		t.Errorf("dns (-want +got):\n%s", diff)
	}
}
