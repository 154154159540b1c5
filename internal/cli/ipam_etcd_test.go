// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/etcd"
)

// TestIPAMEtcd checks the commands without Kubernetes: the agent's configuration names the etcd with the pools.
func TestIPAMEtcd(t *testing.T) {
	e := apitest.StartEtcd(t, nil, netip.MustParseAddr("127.0.0.1"), true)
	datastore, err := etcd.OpenObjects(etcd.Config{
		Access: etcd.Access{
			Endpoints: []string{e.URL}, Prefix: "/hosts", CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile,
		},
		Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = datastore.Close() }()
	for kind, text := range map[store.Kind]string{
		store.Nodes():         `{"apiVersion":"v1","kind":"Node","metadata":{"name":"here"}}`,
		store.AddressPools():  `{"apiVersion":"weft.dev/v1alpha1","kind":"AddressPool","metadata":{"name":"p"},"spec":{"regions":[{"cidr":"10.0.0.0/24","blockSize":28}]}}`,
		store.AddressBlocks(): `{"apiVersion":"weft.dev/v1alpha1","kind":"AddressBlock","metadata":{"name":"p-10-0-0-0-28"},"spec":{"pool":"p","cidr":"10.0.0.0/28","node":"gone","claim":"1"}}`,
	} {
		o, err := store.NewObject([]byte(text))
		if err == nil {
			_, err = datastore.Objects().Create(t.Context(), kind, o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "weft.yaml")
	text := fmt.Sprintf("etcd: {endpoints: [%q], prefix: /hosts, caFile: %q, certFile: %q, keyFile: %q}\n", e.URL,
		e.CAFile, e.CertFile, e.KeyFile)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		exit int
		want string
	}{
		{"show", 0, "p     10.0.0.0/24 in /28  -     -              1       0         256    -     -     yes          -\n"},
		{"reserve 10.0.0.7 --for printers", 0, "AddressReservation reserved-10-0-0-7-32: 10.0.0.7\n"},
		{"show 10.0.0.7", 0, "excluded in pool p by 10.0.0.7/32 for printers"},
		{"check --fix", 0, "belongs to node \"gone\", and there is no such node (fixed: the block is free)\n"},
		{"release 10.0.0.7", 0, "AddressReservation reserved-10-0-0-7-32: 10.0.0.7\n"},
		{"check", 0, "1 pool, 0 blocks, 0 findings\n"},
	} {
		var out, errs bytes.Buffer
		args := append(append([]string{"ipam"}, strings.Fields(c.args)...), "--config", file)
		exit := Run(context.Background(), Env{
			Args: args, Getenv: func(string) string { return "" }, Stdout: &out, Stderr: &errs,
		})
		if exit != c.exit || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit %d, want %d with %q\n%s%s", c.args, exit, c.exit, c.want, out.String(), errs.String())
		}
	}
}
