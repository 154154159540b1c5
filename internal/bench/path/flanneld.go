// SPDX-License-Identifier: Apache-2.0

package path

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/bench/subprocess"
	"github.com/weft-net/weft/internal/netns"
)

// etcdPort is the port of the first node's etcd.
const etcdPort = "2379"

// flanneld starts flanneld on both nodes of a world, and etcd on the first. flanneld chooses the subnets.
func (b *bench) flanneld(ctx context.Context, w *world) (mtu int, err error) {
	url := "http://" + net.JoinHostPort(wireAddr(0).String(), etcdPort)
	etcd, err := subprocess.Start(w.nodes[0].ns, -1, b.cfg.Etcd, "--data-dir", filepath.Join(w.dir, "etcd"),
		"--unsafe-no-fsync",
		"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", "http://127.0.0.1:0",
		"--log-level", "error")
	if err != nil {
		return 0, err
	}
	w.processes = append([]*subprocess.Process{etcd}, w.processes...)
	conf := fmt.Sprintf(`{"Network":%q,"Backend":{"Type":"udp"}}`, clusterCIDR())
	if err := wait(ctx, "etcd", func() error {
		return put(ctx, w.nodes[0].ns, url, "/coreos.com/network/config", conf)
	}); err != nil {
		return 0, errors.Join(err, errors.New(etcd.Stderr.String()))
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		file := filepath.Join(w.dir, "subnet"+strconv.Itoa(i)+".env")
		p, err := subprocess.Start(n.ns, -1, b.cfg.Flanneld, "-etcd-endpoints="+url, "-subnet-file="+file, "-iface=eth0",
			"-ip-masq=true")
		if err != nil {
			return 0, err
		}
		w.processes = append([]*subprocess.Process{p}, w.processes...)
		err = wait(ctx, "flanneld", func() error {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			n.cidr, mtu, err = subnet(string(text))
			return err
		})
		if err != nil {
			return 0, errors.Join(err, errors.New(p.Stderr.String()))
		}
	}
	return mtu, nil
}

// subnet parses flannel's subnet.env.
func subnet(text string) (cidr netip.Prefix, mtu int, err error) {
	err = errors.New("no FLANNEL_SUBNET yet")
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "FLANNEL_SUBNET":
			cidr, err = netip.ParsePrefix(value)
			cidr = cidr.Masked()
		case "FLANNEL_MTU":
			mtu, _ = strconv.Atoi(value)
		}
	}
	return cidr, mtu, err
}

// wait retries until try succeeds, for ten seconds at most.
func wait(ctx context.Context, what string, try func() error) error {
	err := try()
	for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end) && ctx.Err() == nil; err = try() {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("%s is not ready after 10 s: %w", what, err)
	}
	return nil
}

// put writes a key through etcd's JSON gateway, from inside a namespace.
func put(ctx context.Context, ns *netns.NS, url, key, value string) error {
	encode := base64.StdEncoding.EncodeToString
	body := fmt.Sprintf(`{"key":%q,"value":%q}`, encode([]byte(key)), encode([]byte(value)))
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			err = ns.Do(func() error {
				c, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, addr)
				return err
			})
			return c, err
		},
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v3/kv/put", bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport, Timeout: 2 * time.Second}).Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s", response.Status, text)
	}
	return nil
}
