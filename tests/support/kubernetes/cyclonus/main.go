// cyclonus' generated policies on a cluster: each is applied, every pair of pods is probed, and what connects is
// compared with what cyclonus' own evaluator says.
//
// It is what `cyclonus generate` does, but for the way of the probes: its command starts one `exec` by the API server
// for each pair and port, 324 for a step. Its batches, which the command has turned off, start one for each pod.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"

	"github.com/mattfenwick/cyclonus/pkg/cli"
	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/kube"
	"github.com/sirupsen/logrus"
	core "k8s.io/api/core/v1"
)

type result struct {
	Name   string
	Passed bool
	Error  string
}

var (
	output = flag.String("output", "", "the file to write the results into, as JSON")
	count  = flag.Int("slice", 0, "so many cases alone, drawn by --seed")
	seed   = flag.Int64("seed", 0, "of that drawing")
	wait   = flag.Int("wait", 3, "seconds between a change and its probes")
	names  = []string{"x", "y", "z"}
)

// patient asks a pod again where the answer was lost on its way. On a busy machine an `exec` may end well and without
// a word, which cyclonus takes for the failure of all its probes. A worker that has probed always says what it saw.
type patient struct{ kube.IKubernetes }

func (p patient) ExecuteRemoteCommand(namespace, pod, container string, command []string) (string, string, error, error) {
	for tries := 1; ; tries++ {
		stdout, stderr, failed, err := p.IKubernetes.ExecuteRemoteCommand(namespace, pod, container, command)
		if stdout != "" || failed != nil || err != nil || tries == 3 {
			return stdout, stderr, failed, err
		}
		fmt.Printf("no word from %s/%s: asked again\n", namespace, pod)
	}
}

func main() {
	flag.Parse()
	logrus.SetLevel(logrus.WarnLevel)
	found, err := kube.NewKubernetesForContext("")
	must(err)
	cluster := patient{found}
	protocols := []core.Protocol{core.ProtocolTCP, core.ProtocolUDP}
	pods, err := probe.NewDefaultResources(
		cluster, names, []string{"a", "b", "c"}, []int{80, 81}, protocols, nil, 300, true, "")
	must(err)
	target, err := pods.GetPod("z", "c") // whose address the blocks of addresses are about, as in `cyclonus generate`
	must(err)
	cases := generator.NewTestCaseGenerator(true, target.IP, names, nil, cli.DefaultExcludeTags).GenerateTestCases()
	if *count > 0 {
		rand.New(rand.NewSource(*seed)).Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
		cases = cases[:min(*count, len(cases))]
	}
	fmt.Printf("%d cases\n", len(cases))
	interpreter := connectivity.NewInterpreter(cluster, pods, &connectivity.InterpreterConfig{
		ResetClusterBeforeTestCase:       true,
		PerturbationWaitSeconds:          *wait,
		VerifyClusterStateBeforeTestCase: true,
		BatchJobs:                        true,
		IgnoreLoopback:                   true, // nobody can keep a pod from itself
		JobTimeoutSeconds:                2,
	})
	printer := &connectivity.Printer{IgnoreLoopback: true}
	results := []result{}
	for _, one := range cases {
		run := interpreter.ExecuteTestCase(one)
		told := result{Name: one.Description}
		if run.Err != nil {
			told.Error = run.Err.Error()
		} else {
			printer.PrintTestCaseResult(run)
			told.Passed = run.Passed(true)
		}
		results = append(results, told)
		text, err := json.MarshalIndent(results, "", "  ")
		must(err)
		must(os.WriteFile(*output, text, 0o644)) // after each: so an interrupted run tells as well
	}
}

func must(err error) {
	if err != nil {
		logrus.Fatal(err)
	}
}
