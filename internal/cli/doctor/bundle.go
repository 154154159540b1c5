// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

const (
	bundleFile    = 8 << 20 // bytes, the most of one file
	programsLimit = 10 * time.Second
)

// secret finds the keys of JSON and YAML whose values are nobody's business. Keys that say where a secret is are kept.
var secret = regexp.MustCompile(
	`(?i)("?[a-z_-]*(?:token|password|passwd|secret|psk|privatekey|private_key|apikey|client-key-data|bearer)"?\s*:\s*)("(?:[^"\\]|\\.)*"|[^\s,}\]]+)`,
)

// Redact replaces the values of keys that speak of secrets.
func Redact(b []byte) []byte { return secret.ReplaceAll(b, []byte(`${1}"(left out)"`)) }

// part is a file of the bundle.
type part struct {
	name string
	make func(ctx context.Context) ([]byte, error)
}

// Bundle writes what helps to understand a node, as a gzipped tar below weft/. A part that cannot be had is there as
// NAME.error. It holds no Secrets, no tokens and nothing of the pods' environment.
func Bundle(ctx context.Context, n Node, version string, now time.Time, w io.Writer) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, p := range n.parts(version, now) {
		b, err := p.make(ctx)
		if err != nil {
			p.name, b = p.name+".error", []byte(err.Error()+"\n")
		}
		h := &tar.Header{Name: "weft/" + p.name, Mode: 0o600, Size: int64(len(b)), ModTime: now, Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("bundle: %s: %w", p.name, err)
		}
		if _, err := t.Write(b); err != nil {
			return fmt.Errorf("bundle: %s: %w", p.name, err)
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	return z.Close()
}

func (n Node) parts(version string, now time.Time) []part {
	parts := []part{
		{"about.txt", func(context.Context) ([]byte, error) {
			return fmt.Appendf(nil, "weft %s\n%s\n", version, now.UTC().Format(time.RFC3339)), nil
		}},
		{"doctor.json", func(ctx context.Context) ([]byte, error) { return indented(Examine(ctx, n)) }},
		{"configuration.json", func(context.Context) ([]byte, error) { return indented(n.Config) }},
		{"mesh.json", file(filepath.Join(n.Config.StateDir, "mesh.json"))},
		{"os-release", file(filepath.Join(n.NodeRoot, "/etc/os-release"))},
	}
	for _, path := range []string{"metrics", "attachments", "addresses"} {
		if url, ok := localURL(n.Config.Metrics.Address, "/"+path); ok {
			parts = append(parts, part{path + ".txt", func(ctx context.Context) ([]byte, error) {
				b, status, err := fetch(ctx, url)
				if err == nil && status/100 != 2 {
					err = fmt.Errorf("%s: status %d", url, status)
				}
				return b, err
			}})
		}
	}
	for _, name := range []string{
		"version", "meminfo", "loadavg", "modules", "net/dev", "net/route", "net/ipv6_route", "net/if_inet6",
		"net/fib_trie", "net/arp",
		"net/snmp", "net/netstat", "net/sockstat", "net/softnet_stat", "sys/net/ipv4/ip_forward",
		"sys/net/netfilter/nf_conntrack_count",
	} {
		parts = append(parts, part{"proc/" + name, file(filepath.Join(n.Root, "/proc", name))})
	}
	if names, err := n.networks(); err == nil {
		for _, name := range names {
			parts = append(parts, part{"net.d/" + name, file(filepath.Join(n.Config.Install.ConfDir, name))})
		}
	}
	for _, p := range []struct {
		name string
		args []string
	}{
		{"nft.txt", []string{"nft", "-s", "list", "ruleset"}},
		{"links.txt", []string{"ip", "-d", "link"}},
		{"rules.txt", []string{"ip", "rule"}},
		{"routes.txt", []string{"ip", "route", "show", "table", "all"}},
		{"neighbors.txt", []string{"ip", "neigh"}},
	} {
		parts = append(parts, part{p.name, func(ctx context.Context) ([]byte, error) { return n.output(ctx, p.args) }})
	}
	return parts
}

// file reads a file, as far as it goes into the bundle.
func file(path string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		b, err := io.ReadAll(io.LimitReader(f, bundleFile))
		return Redact(b), err
	}
}

func indented(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return Redact(append(b, '\n')), err
}

// output executes a program of the node's.
func (n Node) output(ctx context.Context, args []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, programsLimit)
	defer cancel()
	path := ""
	for _, dir := range []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"} {
		if info, err := os.Stat(filepath.Join(n.NodeRoot, dir, args[0])); err == nil && info.Mode().IsRegular() {
			path = filepath.Join(dir, args[0])
			break
		}
	}
	if path == "" {
		return nil, fmt.Errorf("the node has no program %s", args[0])
	}
	cmd := exec.CommandContext(ctx, path, args[1:]...)
	if n.NodeRoot != "" {
		cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Chroot: n.NodeRoot}, "/"
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%v: %w: %.400s", args, err, out.String())
	}
	return out.Bytes()[:min(out.Len(), bundleFile)], nil
}
