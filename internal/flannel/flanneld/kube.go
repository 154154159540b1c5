// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// again is the pause before a failed write to the API server is retried.
const again = 2 * time.Second

// kubernetes is the manager of a cluster whose nodes have podCIDRs.
type kubernetes struct {
	d     *daemon
	keys  flannel.Keys
	begin string // of the annotations' names
	api   *kube.Store
	node  string
	wake  notify.Chan

	mu   sync.Mutex
	have map[string]string // the node's annotations, under the usual prefix
	want *model.Published
}

// newKubernetes finds the server and the node's name. It waits for the server where that has to be asked for the name.
func (d *daemon) newKubernetes(ctx context.Context) (*kubernetes, error) {
	k := &kubernetes{d: d, wake: notify.New()}
	if err := checkEnv(d.cfg.Getenv); err != nil {
		return nil, err
	}
	var err error
	if k.keys, err = flannel.KeysOf(d.cfg.KubeAnnotationPrefix); err != nil {
		return nil, err
	}
	k.begin = strings.TrimSuffix(k.keys.Managed, "kube-subnet-manager")
	k.node = d.cfg.Getenv("NODE_NAME")
	pod, namespace := d.cfg.Getenv("POD_NAME"), d.cfg.Getenv("POD_NAMESPACE")
	if k.node == "" && (pod == "" || namespace == "") {
		return nil, model.Errorf(model.CodeInvalidEnv, "set NODE_NAME, or POD_NAME and POD_NAMESPACE",
			"NODE_NAME, POD_NAME %q and POD_NAMESPACE %q do not name the node", pod, namespace)
	}
	open := func(node string) (*kube.Store, error) {
		return kube.Open(kube.Config{
			Access: kube.Access{
				InCluster: d.cfg.Kubeconfig == "", Kubeconfig: d.cfg.Kubeconfig, Server: d.cfg.KubeAPIURL, Getenv: d.cfg.Getenv,
			},
			Node: node, Agent: "weft-flanneld/" + d.cfg.Version, Log: d.cfg.Log, Now: d.cfg.Now, After: d.cfg.After,
		})
	}
	if k.node == "" {
		asking, err := open("unknown")
		if err != nil {
			return nil, err
		}
		err = d.retry(ctx, "find the name of the node", func() (err error) {
			if k.node, err = asking.NodeOf(ctx, namespace, pod); err == nil && k.node == "" {
				err = fmt.Errorf("pod %s/%s runs on no node yet", namespace, pod)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	k.api, err = open(k.node)
	return k, err
}

func (k *kubernetes) netConf(context.Context) ([]byte, error) {
	text, err := os.ReadFile(k.d.cfg.NetConfPath)
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidConf, "mount the ConfigMap kube-flannel-cfg there",
			"--net-config-path: %w", err)
	}
	return text, nil
}

// self reads the node's own object.
func (k *kubernetes) self(ctx context.Context) (model.Node, error) {
	o, err := k.api.Node(ctx, k.node, k.begin, flannel.Prefix+"/")
	if err != nil {
		return model.Node{}, err
	}
	n, err := o.Node()
	if err == nil {
		k.note(n.Annotations)
	}
	return n, err
}

func (k *kubernetes) note(annotations map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.have = annotations
}

func (k *kubernetes) external(ctx context.Context) ([]netip.Addr, error) {
	var out []netip.Addr
	err := k.d.retry(ctx, "read node "+k.node, func() error {
		n, err := k.self(ctx)
		if err == nil {
			out, err = flannel.DefaultKeys().External(n.Annotations)
		}
		return err
	})
	return out, err
}

// acquire waits until the node has podCIDRs, and makes sure that they are of the network.
func (k *kubernetes) acquire(ctx context.Context, ask request) (grant, error) {
	n, err := k.self(ctx)
	if err != nil {
		return grant{}, err
	}
	g := grant{name: k.node}
	for _, network := range ask.conf.Networks() {
		i := slices.IndexFunc(n.PodCIDRs, func(p netip.Prefix) bool { return familyOf(p.Addr()) == familyOf(network.Addr()) })
		if i < 0 {
			return g, model.Errorf(model.CodeTryAgain,
				"let the controller manager allocate podCIDRs: --allocate-node-cidrs, --cluster-cidr "+network.String(),
				"node %s has no podCIDR of the family of %s", k.node, network)
		}
		if p := n.PodCIDRs[i]; p.Bits() < network.Bits() || !network.Contains(p.Addr()) {
			return g, model.Errorf(
				model.CodeInvalidConf, "make Network of net-conf.json the --cluster-cidr of the controller manager",
				"node %s: its podCIDR %s is not in the network %s", k.node, p, network)
		}
		g.subnets = append(g.subnets, n.PodCIDRs[i])
	}
	return g, nil
}

// Watch sends the nodes of flannel's network.
func (k *kubernetes) Watch(ctx context.Context) (<-chan store.Event, error) {
	return k.api.WatchNodes(ctx, k.begin, flannel.Prefix+"/")
}

// takesPart reports whether a node is part of flannel's network. This node is, even before it has its annotations.
func (k *kubernetes) takesPart(n model.Node) bool {
	if n.Name == k.node {
		k.note(n.Annotations)
		k.wakeUp()
		return true
	}
	return n.Published != nil
}

func (k *kubernetes) publish(p model.Published) {
	k.mu.Lock()
	k.want = &p
	k.mu.Unlock()
	k.wakeUp()
}

// renumbered opens new connections to the API server: the client's own keepalive detects a dead one only after 45 s.
func (k *kubernetes) renumbered() { k.api.Reconnect() }

func (k *kubernetes) wakeUp() {
	k.wake.Notify()
}

// due returns the annotations to write, under the cluster's prefix.
func (k *kubernetes) due() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.want == nil {
		return nil
	}
	usual, out := flannel.DefaultKeys(), map[string]string{}
	for name, value := range usual.Write(*k.want, k.have) {
		if k.have[name] != value {
			out[k.begin+strings.TrimPrefix(name, flannel.Prefix+"/")] = value
		}
	}
	return out
}

// keep writes the node's annotations, and repairs them when another client has changed them.
func (k *kubernetes) keep(ctx context.Context) error {
	said := !k.d.cfg.SetNodeNetworkUnavailable
	changed := ""
	for {
		var retry <-chan time.Time
		due := k.due()
		k.mu.Lock()
		condition := !said && k.want != nil
		k.mu.Unlock()
		if len(due) > 0 || condition {
			status := kube.NodeStatus{Annotations: due}
			if condition {
				status.Condition = &kube.NetworkCondition{
					Reason: model.ReasonFlannelIsUp, Message: "Flannel is running on this node", Transition: true,
				}
			}
			err := k.api.PatchNode(ctx, k.node, status)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				if err.Error() != changed {
					changed = err.Error()
					k.d.log.Warn("daemon could not write the node's status; it retries", "err", err)
				}
				retry = k.d.cfg.After(again)
			default:
				said, changed = true, ""
				k.wrote(due)
				k.d.log.Info("daemon annotated the node", "annotations", slices.Sorted(maps.Keys(due)), "available", condition)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-retry:
		}
	}
}

// wrote records the server's current annotations; the watch may be behind.
func (k *kubernetes) wrote(annotations map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	have := maps.Clone(k.have)
	if have == nil {
		have = map[string]string{}
	}
	for name, value := range annotations {
		have[flannel.Prefix+"/"+strings.TrimPrefix(name, k.begin)] = value
	}
	k.have = have
}

// ended returns nil if an error is only the end of ctx.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		return nil
	}
	return err
}
