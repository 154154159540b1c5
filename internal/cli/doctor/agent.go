// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/ipam/blockjournal"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/cri"
	"github.com/weft-net/weft/internal/node/reconcile"
)

// callTimeout is the timeout of a call of the agent.
const callTimeout = 3 * time.Second

// agentAlive probes the agent's liveness socket, as weft-cni does when an answer is late.
func agentAlive(ctx context.Context, n Node) []Finding {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	path := wire.PingSocket(n.Config.Socket)
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return bad("start the agent: kubectl -n kube-system get pods -l app.kubernetes.io/name=weft, or weft agent",
			"no agent at %s: %v", n.Config.Socket, err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return bad("", "agent at %s: %v", n.Config.Socket, err)
	}
	if _, err := io.ReadFull(conn, make([]byte, wire.AnswerHeader)); err != nil {
		return bad("see the agent's log; the process may be stopped", "the agent at %s does not answer: %v",
			n.Config.Socket, err)
	}
	return nil
}

// agentReady reads the agent's readiness.
func agentReady(ctx context.Context, n Node) []Finding {
	url, ok := localURL(n.Config.Metrics.Address, "/readyz")
	if !ok {
		return skip("not checked: metrics.address is not set")
	}
	body, status, err := fetch(ctx, url)
	switch {
	case err != nil:
		return bad("check that the agent runs", "%s: %v", url, err)
	case status != http.StatusOK:
		return bad("", "the agent is not ready: %s", strings.TrimSpace(string(body)))
	}
	return nil
}

// localURL returns a URL of this node's agent; a wildcard address becomes the loopback address.
func localURL(address, path string) (string, bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", false
	}
	if a, err := netip.ParseAddr(host); err != nil || a.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + path, true
}

func fetch(ctx context.Context, url string) (body []byte, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	direct := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // without a proxy
	answer, err := direct.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(answer.Body, bundleFile))
	return body, answer.StatusCode, err
}

// runtimeReady reads the NetworkReady condition of the container runtime.
func runtimeReady(ctx context.Context, n Node) []Finding {
	endpoint := n.Config.Runtime.Endpoint
	switch endpoint {
	case "":
		return skip("not checked: runtime.endpoint is not set")
	case "auto":
		var err error
		if endpoint, err = cri.Find(cri.Endpoints()); err != nil {
			return warn(hintOf(err), "%s", message(err))
		}
	}
	client, err := cri.Dial(endpoint)
	if err != nil {
		return warn(hintOf(err), "%s", message(err))
	}
	defer func() { _ = client.Close() }()
	ready, why, err := client.Network(ctx)
	switch {
	case err != nil:
		return warn(hintOf(err), "%s", message(err))
	case !ready:
		return bad("the node stays NotReady until this is fixed", "the runtime at %s: %s", endpoint, why)
	}
	return nil
}

// meshReconciled reads the status of the mesh.
func meshReconciled(ctx context.Context, n Node) []Finding {
	if n.Config.StoreDir == "" && !n.Config.Kubernetes.InCluster && n.Config.Kubernetes.Kubeconfig == "" {
		return n.unknown("no mesh: the agent is not configured for a cluster")
	}
	if n.Config.Network.Mode.OtherVendor() {
		return skip("no mesh: another vendor's plugin routes between nodes")
	}
	status, err := reconcile.AskStatus(ctx, n.Config.StateDir)
	if errors.Is(err, fs.ErrNotExist) && !n.AgentAnswers {
		return n.unknown("")
	}
	if err != nil {
		return warn(hintOf(err), "%s", message(err))
	}
	var out []Finding
	if status.Error != "" {
		out = append(out, bad("see weft mesh", "%s", status.Error)...)
	}
	for _, p := range status.Topology.Problems {
		out = append(out, warn(p.Hint, "%s", p.Message)...)
	}
	if len(out) == 0 && !n.AgentAnswers {
		return n.unknown("") // the status file may be of an agent that has ended
	}
	return out
}

// duplicateNode reads which other hosts have claimed blocks with this node's name.
func duplicateNode(_ context.Context, n Node) []Finding {
	hosts, err := blockjournal.DuplicateNodes(n.Config.StateDir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(hosts) == 0 && !n.AgentAnswers {
		return n.unknown("not checked: this node has no address blocks")
	}
	if err != nil {
		return warn("", "journal of address blocks: %v", err)
	}
	if len(hosts) == 0 {
		return nil
	}
	return bad(
		"set a unique --node for each agent; if this host was reinstalled, it takes over its former blocks after ten minutes",
		"another host has claimed addresses with this node's name: %s", strings.Join(hosts, ", "))
}

// hintOf returns the hint of an error.
func hintOf(err error) string {
	var f *model.Error
	if errors.As(err, &f) {
		return f.Hint
	}
	return ""
}

// message returns the text of an error without its hint.
func message(err error) string {
	var f *model.Error
	if errors.As(err, &f) {
		return f.Msg
	}
	return err.Error()
}
