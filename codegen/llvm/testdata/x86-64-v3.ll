; RMS of one row on the host: float64 sum in index order, wide loads, a root, a
; copy that becomes memcpy, and a table whose address PIC decides how to take. The
; triple is not in LLVM's own spelling.
target triple = "x86_64-linux-gnu"

declare double @llvm.sqrt.f64(double)
declare void @llvm.memcpy.p0.p0.i64(ptr noalias writeonly, ptr noalias readonly, i64, i1 immarg)

@eps = internal constant [2 x double] [double 1.0e-6, double 2.0e-6]

define void @rms(ptr noalias %x, ptr noalias %y, i64 %n) {
entry:
  %bytes = shl i64 %n, 2
  call void @llvm.memcpy.p0.p0.i64(ptr %y, ptr %x, i64 %bytes, i1 false)
  br label %sum

sum:
  %i = phi i64 [ 0, %entry ], [ %i.next, %sum ]
  %acc = phi double [ 0.0, %entry ], [ %acc.next, %sum ]
  %p = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %p
  %d = fpext float %v to double
  %acc.next = call double @llvm.fmuladd.f64(double %d, double %d, double %acc)
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %sum, label %root

root:
  %count = uitofp i64 %n to double
  %mean = fdiv double %acc.next, %count
  %odd = and i64 %n, 1
  %pe = getelementptr [2 x double], ptr @eps, i64 0, i64 %odd
  %e = load double, ptr %pe
  %biased = fadd double %mean, %e
  %rms = call double @llvm.sqrt.f64(double %biased)
  %scale.d = fdiv double 1.0, %rms
  %scale = fptrunc double %scale.d to float
  br label %write

write:
  %j = phi i64 [ 0, %root ], [ %j.next, %write ]
  %q = getelementptr float, ptr %y, i64 %j
  %w = load float, ptr %q
  %s = fmul float %w, %scale
  store float %s, ptr %q
  %j.next = add i64 %j, 1
  %again = icmp ult i64 %j.next, %n
  br i1 %again, label %write, label %done

done:
  ret void
}

declare double @llvm.fmuladd.f64(double, double, double)
