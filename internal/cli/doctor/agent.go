// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/cri"
	"github.com/weft-net/weft/internal/node/reconcile"
)

// answerLimit is how long whoever is asked may take.
const answerLimit = 3 * time.Second

// agentAnswers asks as weft-cni does when an answer is late.
func agentAnswers(ctx context.Context, n Node) []Finding {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	path := wire.PingSocket(n.Config.Socket)
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return bad("start it: kubectl -n kube-system get pods -l app.kubernetes.io/name=weft, or weft agent",
			"no agent at %s: %v", n.Config.Socket, err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(answerLimit)); err != nil {
		return bad("", "agent at %s: %v", n.Config.Socket, err)
	}
	if _, err := io.ReadFull(conn, make([]byte, wire.AnswerHeader)); err != nil {
		return bad("its log says what it does; it may be stopped", "the agent at %s does not answer: %v",
			n.Config.Socket, err)
	}
	return nil
}

// agentReady asks the agent itself.
func agentReady(ctx context.Context, n Node) []Finding {
	url, ok := localURL(n.Config.Metrics.Address, "/readyz")
	if !ok {
		return skip("not asked: metrics.address is not set")
	}
	body, status, err := fetch(ctx, url)
	switch {
	case err != nil:
		return bad("does the agent run?", "%s: %v", url, err)
	case status != http.StatusOK:
		return bad("", "the agent is not ready: %s", strings.TrimSpace(string(body)))
	}
	return nil
}

// localURL is where the agent of this node is asked over HTTP.
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
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	direct := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // never by a proxy
	answer, err := direct.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(answer.Body, bundleFile))
	return body, answer.StatusCode, err
}

// runtimeReady asks the runtime what it thinks of the network.
func runtimeReady(ctx context.Context, n Node) []Finding {
	endpoint := n.Config.Runtime.Endpoint
	switch endpoint {
	case "":
		return skip("not asked: runtime.endpoint is not set")
	case "auto":
		var err error
		if endpoint, err = cri.Find(cri.Endpoints()); err != nil {
			return warn(hintOf(err), "%s", bare(err))
		}
	}
	client, err := cri.Dial(endpoint)
	if err != nil {
		return warn(hintOf(err), "%s", bare(err))
	}
	defer func() { _ = client.Close() }()
	ready, why, err := client.Network(ctx)
	switch {
	case err != nil:
		return warn(hintOf(err), "%s", bare(err))
	case !ready:
		return bad("the node is NotReady until that is put right", "the runtime at %s: %s", endpoint, why)
	}
	return nil
}

// meshInForce asks the agent about the other nodes.
func meshInForce(ctx context.Context, n Node) []Finding {
	if n.Config.StoreDir == "" && !n.Config.Kubernetes.InCluster && n.Config.Kubernetes.Kubeconfig == "" {
		return skip("there is none: the agent knows no cluster")
	}
	if n.Config.Network.Mode == config.ModeMultus {
		return skip("there is none: the routes to other nodes are another vendor's")
	}
	status, err := reconcile.AskStatus(ctx, n.Config.StateDir)
	if err != nil {
		return warn(hintOf(err), "%s", bare(err))
	}
	var out []Finding
	if status.Error != "" {
		out = append(out, bad("weft mesh shows which part", "%s", status.Error)...)
	}
	for _, p := range status.Topology.Problems {
		out = append(out, warn(p.Hint, "%s", p.Message)...)
	}
	return out
}

// nameTaken reads what the agent has written down about other machines of its name.
func nameTaken(_ context.Context, n Node) []Finding {
	machines, err := blocks.Strangers(n.Config.StateDir)
	if err != nil {
		return warn("", "journal of address blocks: %v", err)
	}
	if len(machines) == 0 {
		return nil
	}
	return bad(
		"give each agent its own --node; where this machine was installed anew, the blocks of the old one are its own after ten minutes",
		"another machine has claimed addresses as this node: %s", strings.Join(machines, ", "))
}

// hintOf and bare are the two halves of an error for people.
func hintOf(err error) string {
	var f *model.Fault
	if errors.As(err, &f) {
		return f.Hint
	}
	return ""
}

func bare(err error) string {
	var f *model.Fault
	if errors.As(err, &f) {
		return f.Msg
	}
	return err.Error()
}
