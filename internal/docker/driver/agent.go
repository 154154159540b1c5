// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-net/weft/internal/cni/shim"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/docker/agentapi"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/adminapi"
)

const (
	// callName is the name of the driver's calls, as the name of a runtime's configuration. The networks are the
	// runtime's; garbage collection of the runtime's own attachments leaves those of other callers.
	callName = "weft-docker"
	// ifName is the interface's name in the attachments.
	ifName = "eth0"
	// shimType is the plugin whose configuration has the node's networks.
	shimType = "weft-cni"
	// annotationsCap is the capability by which a runtime passes a pod's annotations.
	annotationsCap = "io.kubernetes.cri.pod-annotations"
	// adminTime bounds a request to the agent, so that Docker has an answer in 5 s.
	adminTime = 4 * time.Second
)

// agent makes the calls of a container runtime, as weft-cni does, and requests of the admin socket.
type agent struct {
	// confDir has the runtime's network configuration that the agent writes.
	confDir string
	calls   atomic.Int64
	now     func() time.Time
}

// attachment is an ADD.
type attachment struct {
	id, namespace string
	annotations   map[string]string
	ns            *netns.NS
	mac           string
}

// plugin returns the plugin object of the first configuration of the agent in the runtime's directory.
func (a *agent) plugin() (map[string]json.RawMessage, error) {
	files, err := os.ReadDir(a.confDir)
	if err != nil {
		return nil, model.Errorf(model.CodeTryAgain, "the agent writes it when it is ready: is it running?",
			"network configuration: %w", err)
	}
	for _, f := range files { // sorted by name, as the runtime reads them
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(f.Name())) {
			continue
		}
		path := filepath.Join(a.confDir, f.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var list struct {
			Plugins []map[string]json.RawMessage `json:"plugins"`
		}
		var single map[string]json.RawMessage
		if json.Unmarshal(text, &single) != nil || json.Unmarshal(text, &list) != nil {
			continue // the runtime skips it, too
		}
		for _, p := range append(list.Plugins, single) {
			var typ string
			if json.Unmarshal(p["type"], &typ) == nil && typ == shimType {
				return p, nil
			}
		}
	}
	return nil, model.Errorf(model.CodeTryAgain, "the agent writes it when it is ready: is it running?",
		"network configuration: no file in %s has plugin %s", a.confDir, shimType)
}

// conf returns the configuration of a call.
func (a *agent) conf(add map[string]any) ([]byte, error) {
	p, err := a.plugin()
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	for key, value := range p {
		all[key] = value
	}
	delete(all, "capabilities")
	all["cniVersion"], all["name"] = "1.0.0", callName
	for key, value := range add {
		all[key] = value
	}
	return json.Marshal(all)
}

// socket returns the path of the agent's socket.
func (a *agent) socket() (string, error) {
	conf, err := a.conf(nil)
	if err != nil {
		return "", err
	}
	return wire.Socket(conf), nil
}

// request makes a request of the admin socket.
func (a *agent) request(ctx context.Context, method, path string, body any, ns *netns.NS, into any) error {
	return a.query(ctx, method, path, nil, body, ns, into)
}

// query is request with parameters.
func (a *agent) query(
	ctx context.Context, method, path string, query url.Values, body any, ns *netns.NS, into any,
) error {
	socket, err := a.socket()
	if err != nil {
		return err
	}
	return adminapi.Request{
		Socket: adminapi.Path(socket), Method: method, Path: path, Query: query, Body: body, Timeout: adminTime, NS: ns,
		Server: "weft agent", Hint: "is `weft agent` running on this node, and of this version?",
	}.Do(ctx, into)
}

// add attaches, and returns the addresses.
func (a *agent) add(q attachment) ([]netip.Prefix, error) {
	conf, err := a.conf(map[string]any{"runtimeConfig": map[string]any{annotationsCap: q.annotations}})
	if err != nil {
		return nil, err
	}
	args := []string{
		"IgnoreUnknown=1", model.ContainerArg + "=" + agentapi.Engine, "K8S_POD_NAMESPACE=" + q.namespace,
		"K8S_POD_NAME=" + q.id, "K8S_POD_UID=" + q.id,
	}
	if q.mac != "" {
		args = append(args, "MAC="+q.mac)
	}
	out, err := a.call("ADD", q.id, q.ns.Path(), strings.Join(args, ";"), conf)
	if err != nil {
		return nil, err
	}
	var result struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(out, &result); err != nil {
		return nil, fmt.Errorf("answer of the agent: %w", err)
	}
	var all []netip.Prefix
	for _, ip := range result.IPs {
		all = append(all, ip.Address)
	}
	return all, nil
}

// del detaches. While the agent is away, the DEL is queued.
func (a *agent) del(id, namespace string) error {
	conf, err := a.conf(nil)
	if err != nil {
		return err
	}
	args := "IgnoreUnknown=1;" + model.ContainerArg + "=" + agentapi.Engine + ";K8S_POD_NAMESPACE=" + namespace +
		";K8S_POD_NAME=" + id + ";K8S_POD_UID=" + id
	_, err = a.call("DEL", id, "", args, conf)
	return err
}

// status returns an error unless the agent can attach containers.
func (a *agent) status() error {
	conf, err := a.conf(map[string]any{"cniVersion": "1.1.0"})
	if err != nil {
		return err
	}
	_, err = a.call("STATUS", "", "", "", conf)
	return err
}

// network returns an error unless a NetworkAttachmentDefinition (namespace/name) exists.
func (a *agent) network(ctx context.Context, network string) error {
	namespace, name, _ := strings.Cut(network, "/")
	query := url.Values{"namespace": {namespace}, "name": {name}}
	return a.query(ctx, http.MethodGet, agentapi.RouteNetwork, query, nil, nil, nil)
}

// call makes a CNI call in this process, as weft-cni does: one request on the agent's socket, an answer within a second
// if there is no agent.
func (a *agent) call(verb, id, ns, args string, conf []byte) ([]byte, error) {
	in, feed, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	defer func() { _ = in.Close() }()
	result, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pipe: %w", err), feed.Close())
	}
	defer func() { _ = result.Close() }()
	go func() {
		_, _ = feed.Write(conf) // the shim fails on a part of it
		_ = feed.Close()
	}()
	answer := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(result)
		answer <- text
	}()
	env := []string{"CNI_COMMAND=" + verb, "CNI_PATH=/opt/cni/bin"}
	if id != "" {
		env = append(env, "CNI_CONTAINERID="+id, "CNI_IFNAME="+ifName, "CNI_ARGS="+args)
	}
	if ns != "" {
		env = append(env, "CNI_NETNS="+ns)
	}
	exit := shim.Run(shim.Env{
		Environ: env, Stdin: int(in.Fd()), Stdout: int(out.Fd()), Stderr: int(out.Fd()), Argv0: shimType, Pid: os.Getpid(),
		UnixNano: func() int64 { return a.now().UnixNano() + a.calls.Add(1) },
	})
	_ = out.Close()
	text := <-answer
	if exit == 0 {
		return text, nil
	}
	var bad struct {
		Code    model.Code `json:"code"`
		Msg     string     `json:"msg"`
		Details string     `json:"details"`
	}
	if json.Unmarshal(text, &bad) != nil || bad.Msg == "" {
		return nil, fmt.Errorf("%s: answer of the agent: %q", verb, text)
	}
	return nil, model.Errorf(bad.Code, bad.Details, "%s", bad.Msg)
}
