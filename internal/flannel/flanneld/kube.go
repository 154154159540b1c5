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

// again is how long a write to the API server waits that has failed.
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
		return nil, model.Faultf(model.CodeInvalidEnv, "set NODE_NAME, or POD_NAME and POD_NAMESPACE",
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
		err = d.insist(ctx, "name of the node", func() (err error) {
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
		return nil, model.Faultf(model.CodeInvalidConf, "mount the ConfigMap kube-flannel-cfg there",
			"--net-config-path: %w", err)
	}
	return text, nil
}

// self asks for the node's own object.
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
	err := k.d.insist(ctx, "node "+k.node, func() error {
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
			return g, model.Faultf(model.CodeTryAgain,
				"have the controller manager give out podCIDRs: --allocate-node-cidrs, --cluster-cidr "+network.String(),
				"node %s has no podCIDR of the family of %s", k.node, network)
		}
		if p := n.PodCIDRs[i]; p.Bits() < network.Bits() || !network.Contains(p.Addr()) {
			return g, model.Faultf(
				model.CodeInvalidConf, "make Network of net-conf.json the --cluster-cidr of the controller manager",
				"node %s: its podCIDR %s is not in the network %s", k.node, p, network)
		}
		g.subnets = append(g.subnets, n.PodCIDRs[i])
	}
	return g, nil
}

// Watch tells of the nodes that take part.
func (k *kubernetes) Watch(ctx context.Context) (<-chan store.Event, error) {
	return k.api.WatchNodes(ctx, k.begin, flannel.Prefix+"/")
}

// takesPart tells whether a node is one of flannel's. The node itself is, even before it has said so.
func (k *kubernetes) takesPart(n model.Node) bool {
	if n.Name == k.node {
		k.note(n.Annotations)
		k.nudge()
		return true
	}
	return n.Published != nil
}

func (k *kubernetes) publish(p model.Published) {
	k.mu.Lock()
	k.want = &p
	k.mu.Unlock()
	k.nudge()
}

// renumbered has the API server asked over new connections: the client's own keepalive finds one that is dead after 45
// s.
func (k *kubernetes) renumbered() { k.api.Reconnect() }

func (k *kubernetes) nudge() {
	k.wake.Notify()
}

// due are the annotations that are not as they should be, under the cluster's prefix.
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

// keep writes what the node says of itself, once and whenever somebody has changed it.
func (k *kubernetes) keep(ctx context.Context) error {
	said := !k.d.cfg.SetNodeNetworkUnavailable
	told := ""
	for {
		var retry <-chan time.Time
		due := k.due()
		k.mu.Lock()
		condition := !said && k.want != nil
		k.mu.Unlock()
		if len(due) > 0 || condition {
			err := k.api.PatchNode(ctx, k.node, kube.NodeStatus{
				Annotations: due, Available: condition, Reason: "FlannelIsUp", Message: "Flannel is running on this node",
			})
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				if err.Error() != told {
					told = err.Error()
					k.d.log.Warn("the node's status is not written; it is tried again", "err", err)
				}
				retry = k.d.cfg.After(again)
			default:
				said, told = true, ""
				k.wrote(due)
				k.d.log.Info("node is annotated", "annotations", slices.Sorted(maps.Keys(due)), "available", condition)
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

// wrote notes what the server has now; the watch may tell an older state for a moment.
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

// ended tells whether an error is nothing but the end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		return nil
	}
	return err
}
