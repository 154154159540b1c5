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
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/explainer"
	"github.com/weft-net/weft/internal/plan/explain"
)

const (
	bundleFile     = 8 << 20 // bytes, the limit of one file
	programTimeout = 10 * time.Second
)

// secret matches keys of JSON and YAML that hold a secret, with the value. It does not match keys that hold a path of one.
var secret = regexp.MustCompile(
	`(?i)("?[a-z_-]*(?:token|password|passwd|secret|psk|privatekey|private_key|apikey|client-key-data|bearer)"?\s*:\s*)("(?:[^"\\]|\\.)*"|[^\s,}\]]+)`,
)

// Redact replaces the values of keys that name secrets.
func Redact(b []byte) []byte { return secret.ReplaceAll(b, []byte(`${1}"(left out)"`)) }

// part is a file of the bundle.
type part struct {
	name string
	make func(ctx context.Context) ([]byte, error)
}

// Bundle writes diagnostics of a node as a gzipped tar archive below weft/. A part that fails is replaced by NAME.error.
// The archive has no Secrets, no tokens and no environment of pods.
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
		{explain.RecordFile, n.explained},
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

// explained returns what the agent has answered to weft explain lately.
func (n Node) explained(ctx context.Context) ([]byte, error) {
	var r explain.Record
	q := adminapi.Request{
		Method:  http.MethodGet,
		Path:    explainer.RouteRecord,
		Socket:  adminapi.InStateDir(n.Config.StateDir),
		Timeout: callTimeout,
		Server:  "agent",
		Hint:    "start the agent",
	}
	if err := q.Do(ctx, &r); err != nil {
		return nil, err
	}
	redactRules(r.Answers)
	return json.MarshalIndent(r, "", "  ") // Redact would damage texts with quotes in them
}

// redactRules redacts the texts of other programs' rules.
func redactRules(answers explain.Answers) {
	for _, a := range answers {
		if a.Chains == nil {
			continue
		}
		for _, c := range a.Chains.Chains {
			for i := range c.Rules {
				c.Rules[i].Text = string(Redact([]byte(c.Rules[i].Text)))
			}
		}
	}
}

// file returns a function that reads a file up to the limit.
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

// output runs a program of the node and returns what it prints.
func (n Node) output(ctx context.Context, args []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
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
