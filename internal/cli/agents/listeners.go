// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/cli/kube/podexec"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// OpenListeners finds the agents of a Kubernetes cluster by their listeners of flows (observe.listen), which need a token and
// no right to execute. The token is in a file, or if its name is empty that of the kubeconfig. The agents answer only what
// their listeners serve.
func (s *Source) OpenListeners(ctx context.Context, tokenFile string) (Cluster, error) {
	dir, stateDir, context := s.chosen()
	if dir+stateDir != "" {
		return Cluster{}, ui.Misusef("leave it out: root may ask these agents", "--tls: only agents in a Kubernetes cluster have listeners")
	}
	k, found, err := podexec.Open(s.Env, s.kubeconfig, context)
	if err != nil {
		return Cluster{}, err
	}
	if !found {
		return Cluster{}, ui.Misusef("add --kubeconfig, or set $KUBECONFIG", "--tls: no cluster is named")
	}
	token := func() (string, error) { return k.Token(ctx) }
	if tokenFile != "" {
		token = func() (string, error) { return readToken(tokenFile) }
	}
	if _, err := token(); err != nil {
		return Cluster{}, err
	}
	nodes, err := k.Objects().List(ctx, store.Nodes())
	if err != nil {
		return Cluster{}, fmt.Errorf("nodes of the cluster: %w", err)
	}
	all, err := k.Objects().List(ctx, store.FlowListeners())
	if err != nil {
		return Cluster{}, fmt.Errorf("the listeners' keys: %w", err)
	}
	published := map[string]store.Object{}
	for _, o := range all {
		published[o.Key.Name] = o
	}
	c := Cluster{Objects: k.Objects(), Nodes: nodes}
	listening := 0
	for _, n := range nodes {
		a, has := listenerOf(n, published, token)
		if has {
			listening++
		}
		c.Agents = append(c.Agents, a)
	}
	if listening == 0 {
		return Cluster{}, model.Errorf(model.CodeNotAvailable, "set observe.listen in the agents' configuration, or leave out --tls",
			"no agent of the cluster has a listener of flows")
	}
	return c.choose(s.chosenNode())
}

func readToken(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", ui.FileError("write a token into it", "--token-file", file, err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", ui.Misusef("write a token into it, as of `kubectl create token NAME`", "--token-file %s: the file is empty", file)
	}
	return token, nil
}

var errNoListener = errors.New("there is none: observe.listen is not set, or the agent is not running yet")

// publishedListener returns where a Node's agent listens, and its key. An agent of an earlier version has published them in
// an annotation of its Node, which counts only if there is no object.
func publishedListener(node store.Object, published map[string]store.Object) (v1alpha1.FlowListenerSpec, error) {
	if o, has := published[node.Key.Name]; has {
		return o.FlowListener()
	}
	l, has, err := node.AnnotatedFlowListener()
	if err == nil && !has {
		err = errNoListener
	}
	return l, err
}

// listenerOf returns the agent of a Node, and whether it has a listener.
func listenerOf(o store.Object, published map[string]store.Object, token func() (string, error)) (Agent, bool) {
	a := Agent{Node: o.Key.Name, at: "its listener", token: token}
	l, err := publishedListener(o, published)
	address := l.Address
	if host, port, cut := net.SplitHostPort(address); err == nil && cut == nil && host == "" {
		var n model.Node
		if n, err = o.Node(); err == nil && len(n.Addrs) == 0 {
			err = errors.New("it has no address")
		}
		if err == nil {
			address = net.JoinHostPort(n.Addrs[0].String(), port)
		}
	}
	if err != nil {
		a.dial = func(context.Context) (net.Conn, error) { return nil, err }
		return a, false
	}
	a.at = address
	a.dial = func(ctx context.Context) (net.Conn, error) { return dialListener(ctx, address, l.Key) }
	return a, true
}

// dialListener connects to a listener with this key.
func dialListener(ctx context.Context, address, key string) (net.Conn, error) {
	d := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		InsecureSkipVerify: true, // the key is compared instead, which is what a certificate would vouch for
		VerifyConnection: func(s tls.ConnectionState) error {
			sum := sha256.Sum256(s.PeerCertificates[0].RawSubjectPublicKeyInfo)
			if base64.StdEncoding.EncodeToString(sum[:]) != key {
				return model.Errorf(model.CodeNotAvailable, "ask again: an agent that starts has a new key; else another program listens there",
					"the key is not the one that the node's agent has published")
			}
			return nil
		},
	}}
	return d.DialContext(ctx, "tcp", address)
}
